"""Kinds of values, one class for each.

    StringKind        Bloom filter of a string, or of the fragment that the client's cohort reports
    CategoricalKind   one bit for each category                    BooleanKind   one bit
    OrdinalKind       one bit for each bucket of numbers           MeanKind      one bit: a number reaches the client's threshold
    JointKind         the bits of two or three parts, one part after the other
    SetKind           bits of the items of a set

A kind is what differs between metrics besides their periods and their documentation; `Metric` adds these and the name, also to messages.
Its word is the `kind` of a definition. A mean has the word of an ordinal metric.

Source: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2 (string) and 4 (one-hot); docs/reference/format.md.
"""

from hubbub.metrics.kinds.joint import JointKind
from hubbub.metrics.kinds.kind import (
    DIGEST_BYTES,
    KINDS,
    BlockKind,
    BloomBits,
    ChangeWords,
    Fact,
    JointValue,
    Kind,
    KindWord,
    Value,
    kind_from_dict,
    kind_from_table,
    kind_word,
)
from hubbub.metrics.kinds.numbers import MeanKind, NumberKind, OrdinalKind, ordinal_kind
from hubbub.metrics.kinds.one_hot import BooleanKind, CategoricalKind
from hubbub.metrics.kinds.sets import SetKind
from hubbub.metrics.kinds.strings import MIN_STRING_BITS, StringKind

__all__ = [
    "DIGEST_BYTES",
    "KINDS",
    "MIN_STRING_BITS",
    "BlockKind",
    "BloomBits",
    "BooleanKind",
    "CategoricalKind",
    "ChangeWords",
    "Fact",
    "JointKind",
    "JointValue",
    "Kind",
    "KindWord",
    "MeanKind",
    "NumberKind",
    "OrdinalKind",
    "SetKind",
    "StringKind",
    "Value",
    "kind_from_dict",
    "kind_from_table",
    "kind_word",
    "ordinal_kind",
]
