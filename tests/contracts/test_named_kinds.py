"""A kind, a hash scheme and a mechanism are named in their own files, and in the places listed here: any other place asks what they say of themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from hubbub.mechanisms.mechanism import MECHANISMS, Mechanism
from hubbub.metrics.hash_schemes import HASH_SCHEMES, HashScheme
from hubbub.metrics.kinds import KINDS, Kind
from tests.contracts.test_layers import MODULES
from tests.support.paths import REPOSITORY

OWN_FILES = (
    "hubbub.mechanisms.",
    "hubbub.metrics.kinds.",
    "hubbub_decoder.estimators.items",
    "hubbub_decoder.estimators.hashed_items",
    "hubbub_decoder.kinds",
    "hubbub_decoder.planning.kinds",
    "hubbub_decoder.planning.subset_selection",
    "hubbub_decoder.planning.privset",
)
"""Where kinds and mechanisms are, in the client, in the decoder and in the plan."""

PLACES = {
    "hubbub": "its mechanisms are public",
    "hubbub.metrics.kinds": "imports the module of each kind",
    "hubbub.metrics.metric": "has a constructor for each kind",
    "hubbub.metrics.params": "has the defaults of programs: UnaryResponse of the probabilities, murmur3-v1, and Params.one_hot",
    "hubbub.conformance.clock": "has examples",
    "hubbub.conformance.ledger": "has examples",
    "hubbub.conformance.recording": "has examples",
    "hubbub.conformance.scenarios": "has examples",
    "hubbub_decoder.cli.plan": "--category and --edges are of one kind each",
    "hubbub_decoder.planning.wishes": "has the default kind",
    "hubbub_decoder.planning.law.chain": "is the law of independent bits",
    "hubbub_decoder.discovery.discover": "only strings are discovered",
    "hubbub_decoder.results.ordinal": "is the result of numbers",
    "hubbub_decoder.data.google_rappor": "reads a format that has these alone",
    "hubbub_decoder.data.google_rappor_joint": "reads a format that has these alone",
    "hubbub_decoder.model.random_string": "is the law of a Bloom filter's hashes",
    "hubbub_decoder.model.vectorized_hashing": "has the hashes of Bloom filters",
    "hubbub_decoder.inference.goodness_of_fit": "tests how often the hashes of MD5 coincide",
    "hubbub_decoder.surveys": "an answer is a bit of its own",
    "hubbub_decoder.results.warnings": "knows the words of header lines",
}
"""Modules outside these files that name one, with the reason. Another kind or mechanism adds none, and changes the first three at most."""

TYPESCRIPT = {"kinds.ts", "mechanism.ts"}
WORDS = {*KINDS, *HASH_SCHEMES, *MECHANISMS}


def subclasses(of: type) -> Iterator[type]:
    below: list[type] = of.__subclasses__()
    for subclass in below:
        yield subclass
        yield from subclasses(subclass)


BASES: tuple[tuple[type, str], ...] = ((Kind, "word"), (HashScheme, "name"), (Mechanism, "word"))
CLASSES = {
    found.__name__
    for base, word in BASES
    for found in subclasses(base)
    if hasattr(found, word) and found.__module__.startswith("hubbub.")
}


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield classes that a module imports, words as members of `KindWord`, and words that it compares, matches or passes.

    >>> list(names_in(ast.parse("from hubbub.metrics.kinds import Kind, SetKind")))
    ['SetKind']
    """
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom():
                yield from (alias.name for alias in node.names if alias.name in CLASSES)
            case ast.Attribute(value=ast.Name(id="KindWord")):
                yield node.attr
            case ast.Compare() | ast.MatchValue() | ast.keyword() | ast.arguments() | ast.Assign():
                constants = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
                yield from (word for word in constants if isinstance(word, str) and word in WORDS)


@pytest.mark.parametrize(
    "source",
    [
        "from hubbub.metrics.kinds.sets import SetKind",
        "from hubbub import SubsetSelection",
        "from hubbub.metrics.kinds.strings import Md5Filter as Filter",
        "given = KindWord.SET",
        "if str(metric.kind) == 'set': pass",
        "if params.hash_scheme in ('one-hot', 'set-v1'): pass",
        "if params.mechanism.word != 'subset': pass",
        "match word:\n    case 'joint': pass",
        "Params(hash_scheme='threshold-v1')",
        "NEEDS_CANDIDATES = ('string',)",
    ],
)
def test_each_way_to_name_one_is_seen(source: str) -> None:
    assert list(names_in(ast.parse(source)))


def test_kinds_and_mechanisms_are_named_in_the_listed_places_alone() -> None:
    named = {module: set(names_in(ast.parse(file.read_text(encoding="utf-8")))) for module, file in MODULES.items()}
    assert {module: names for module, names in named.items() if names and not module.startswith(OWN_FILES)}.keys() == (
        PLACES.keys()
    )


def test_typescript_names_them_in_two_files() -> None:
    words = "|".join(sorted(WORDS - {"string"}))
    asks = re.compile(rf"\b({'|'.join(CLASSES)})\b|[!=]== \"({words})\"|\.word [!=]==")
    sources = (REPOSITORY / "clients" / "typescript" / "src").glob("*.ts")
    assert {source.name for source in sources if asks.search(source.read_text(encoding="utf-8"))} == TYPESCRIPT
