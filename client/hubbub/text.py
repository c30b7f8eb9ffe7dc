"""Text formatting shared by commands, logs and pages: counts, sizes, escaping of untrusted strings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from os.path import commonprefix

DISTRIBUTION = "hubbub-telemetry"
"""What pip installs. The packages and the command are named `hubbub`, but `hubbub` on PyPI is another project."""
SERVER_DISTRIBUTION = "hubbub-telemetry-server"
"""The aggregator and the decoder, which pip installs for each extra of `DISTRIBUTION`."""


def format_count(number: int, noun: str) -> str:
    """Return a count with its noun in the right number.

    >>> format_count(1, "report"), format_count(0, "report"), format_count(1200, "batch"), format_count(2, "epoch")
    ('1 report', '0 reports', '1,200 batches', '2 epochs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith(('tch', 'sh')) else 's'}"


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article.

    >>> with_article("ordinal metric"), with_article("string")
    ('an ordinal metric', 'a string')
    """
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


_MOST_NAMES = 3


def format_names(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others.

    >>> format_names(["a", "b", "c", "d", "e"]), format_names(["a"])
    ('a, b, c and 2 more', 'a')
    """
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question that names the nearest of some names, with a space before it; empty if none is near.

    >>> did_you_mean("homepgae", ["homepage", "os"]), did_you_mean("x", ["homepage", "os"])
    (" Did you mean 'homepage'?", '')
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(names))
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra beside the installed version of hubbub.

    >>> install_hint("decoder")
    "run pip install 'hubbub-telemetry[decoder]'"
    """
    return f"run pip install '{DISTRIBUTION}[{extra}]'"


_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def format_exact_size(size: int) -> str:
    """Return a size in bytes, in the largest unit that divides it.

    >>> [format_exact_size(size) for size in (1000, 65536, 3 << 30)]
    ['1000', '64 KiB', '3 GiB']
    """
    unit = max((unit for unit in _UNITS if size % _UNITS[unit] == 0), key=_UNITS.__getitem__)
    return f"{size // _UNITS[unit]} {unit}".strip()


def parse_size(text: str) -> int | None:
    """Return a size in bytes that is written with or without a unit; None: it is not a size.

    >>> [parse_size(text) for text in ("1000", "64 KiB", "3GiB", "1.5 KiB")]
    [1000, 65536, 3221225472, None]
    """
    match = re.fullmatch(r"([0-9]{1,18}) ?([KMG]iB)?", text)
    return None if match is None else int(match[1]) * _UNITS[match[2] or ""]


def format_size(size: float) -> str:
    """Return a size in bytes, rounded to three digits.

    >>> format_size(0), format_size(1536), format_size(3 << 30)
    ('0 B', '1.5 KiB', '3 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


_JOINER, _EXTENDER = "\u200d", "\ufe0f\u20e3\U0001f3fb-\U0001f3ff"
_EMOJI = f"[\u203c-\u3299\U0001f000-\U0001faff][{_EXTENDER}]*"
_REGION = "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
_SEQUENCE = f"({_EMOJI}(?:{_JOINER}{_EMOJI})+|{_REGION})"
"""Pattern of emoji of several characters with invisible ones between them: families, professions, and the flags of regions."""


def _escape(text: str, kept: str) -> str:
    """Return a text with escapes for characters that are not printable, except those that are kept, and those inside an emoji."""
    return "".join(
        part if n % 2 else "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in part)
        for n, part in enumerate(re.split(_SEQUENCE, text))
    )


def cut_before(text: str, at: int) -> int:
    """Return the last position up to `at` where a text can be cut: not before a mark of a character, and not inside an emoji.

    >>> family = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    >>> [cut_before(f"ab{family}c", at) for at in (1, 2, 3, 6, 7, 8)], cut_before("e\u0301", 1)
    ([1, 2, 2, 2, 7, 8], 0)
    """
    start = at
    while 0 < start < len(text) and at - start < _LONGEST_CLUSTER and _continues(text, start):
        start -= 1
    return at if at - start == _LONGEST_CLUSTER else start


_LONGEST_CLUSTER = 16


def short_labels(labels: Sequence[str], longest: int) -> list[str]:
    """Return labels of at most `longest` characters: long ones that begin alike without the start that they share, others without the middle.

    >>> short_labels(["https://example.org/a/long/path", "short"], 20)
    ['https://examp…g/path', 'short']
    >>> short_labels([f"https://example.org/catalogue/{page}/index.html" for page in ("search", "mail")], 20)
    ['…search/index.html', '…mail/index.html']
    """
    shown = {label: _without_middle(label, longest) for label in labels}
    alike: dict[str, list[str]] = {}
    for label in shown:
        if len(label) > longest > _SHORTEST_LABEL:
            alike.setdefault(label[: longest // 3], []).append(label)
    for cut in alike.values():
        shared = _shared_start(cut, longest // 4) if len(cut) > 1 else 0
        if shared:
            ends = short_labels([label[shared:] for label in cut], longest - 1)
            shown |= {label: "…" + end.removeprefix("…") for label, end in zip(cut, ends, strict=True)}
    return [shown[label] for label in labels]


_SHORTEST_LABEL = 4


def _without_middle(label: str, longest: int) -> str:
    if len(label) <= longest:
        return label
    end = longest // 3
    return f"{label[: cut_before(label, longest - end - 1)]}…{label[cut_before(label, len(label) - end) :]}"


def _shared_start(labels: Sequence[str], most_kept: int) -> int:
    """Length of the start that labels share, less the part of a word at its end, of at most `most_kept` characters."""
    shared = commonprefix(list(labels))  # noqa: RUF071  (characters, not folders)
    word = re.search(r"\w*\Z", shared)
    return cut_before(labels[0], len(shared) - min(len(word[0]) if word else 0, most_kept))


def _continues(text: str, at: int) -> bool:
    """Whether the character at a position belongs to the one before it."""
    before, after = text[at - 1], text[at]
    if "\U0001f1e6" <= after <= "\U0001f1ff":  # two letters are one flag
        letters = re.search("[\U0001f1e6-\U0001f1ff]*$", text[max(0, at - 2 * _LONGEST_CLUSTER) : at])
        return letters is not None and len(letters[0]) % 2 == 1
    return (
        unicodedata.category(after).startswith("M")
        or _JOINER in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
    )


def escape_control_characters(value: str) -> str:
    """Return a string on one printable line: a terminal obeys none of its characters. Emoji of several characters stay whole.

    >>> escape_control_characters("a\\x1b[8m\\u202eb\\n")
    'a\\\\x1b[8m\\\\u202eb\\\\n'
    """
    return value if value.isprintable() else _escape(value, "")


# Tab, line break, and the space separators of Unicode. A test computes them, which would take 1 ms of `import hubbub`.
_SPACES = "\n\t \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def visible_text(text: str) -> str:
    r"""Return a text for a page, in which no character is invisible or changes the order of others: such characters become code points.

    These are control and format characters, lone surrogates and unassigned characters. Spaces, tabs, line breaks and emoji stay.

    >>> visible_text("safe\u202egnp.exe\x00, two\nlines")
    'safe\\u202egnp.exe\\x00, two\nlines'
    """
    if text.isprintable():
        return text
    return _escape(text, _SPACES)


def visible_value(value: object) -> object:
    """Return a value of a template as `visible_text`; markup, which has `__html__`, stays as it is. For `finalize` of Jinja."""
    return value if hasattr(value, "__html__") else visible_text(str(value))


_MAX_CHARACTERS = 80


def escape_untrusted(value: str) -> str:
    """Return an untrusted string on one printable line: control characters escaped, the middle of a long string left out.

    >>> escape_untrusted("a\\x1b[31m\\u202eb"), escape_untrusted("")
    ('a\\\\x1b[31m\\\\u202eb', '""')
    >>> escape_untrusted("x" * 1000)[36:]
    'xxxx...xxxx (1,000 characters)'
    """
    head, tail = value, ""
    if len(value) > _MAX_CHARACTERS:
        head, tail = value[: cut_before(value, 40)], value[cut_before(value, len(value) - 4) :]
    escaped = [escape_control_characters(part) for part in (head, tail)]
    return "...".join(escaped) + f" ({len(value):,} characters)" if tail else escaped[0] or '""'


def format_bits(row: bytes, num_bits: int | None = None) -> str:
    """Return the bits of a report in groups of eight, bit 0 first; without the padding if `num_bits` is given.

    >>> format_bits(bytes([0b101, 0b1]), 10)
    '10100000 10'
    """
    bits = "".join(f"{byte:08b}"[::-1] for byte in row)[:num_bits]
    return " ".join(bits[start : start + 8] for start in range(0, len(bits), 8))
