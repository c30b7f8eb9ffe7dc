"""Count the words that plain English avoids, and the long sentences, in documents and docstrings.

    python -m tests.contracts.prose [--worst N] [--json]

Corpus: README.md, CHANGELOG.md and docs/**/*.md without docs/progress/, and the docstrings of the Python files of each package.
Code is left out: fenced and indented blocks, doctests, inline code, HTML and the addresses of links.
A word has a letter; rates are per 1,000 words.
A heading or a table cell counts as a sentence only if it ends in a full stop or is longer than `MAX_SENTENCE_WORDS`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
GROUPS: dict[str, frozenset[str]] = {
    "what": frozenset({"what"}),
    "who": frozenset({"who", "whoever", "whose"}),
    "say": frozenset({"say", "says", "said", "tell", "tells", "told"}),
    "nobody": frozenset({"nobody", "somebody"}),
}
MAX_PER_1000: dict[str, float] = {"what": 2.0, "who": 0.7, "say": 0.7, "nobody": 0.3}
MAX_SENTENCE_WORDS = 25
MAX_LONG_SHARE = 0.05
PACKAGES: dict[str, tuple[str, ...]] = {
    "client": ("client",),
    "aggregator": ("aggregator",),
    "decoder": ("decoder",),
    "tests": ("tests",),
    "benchmarks, examples": ("benchmarks", "examples"),
}

_CODE = "\x00"  # stands for inline code: not a word, but a sentence may begin with it
_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+|>\s?")
_PARAMETER = re.compile(r"\s*\w[\w, *./|-]{0,40} : ")  # one line of an aligned list of parameters
_INLINE = (
    (re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)"), _CODE),
    (re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>"), " "),
    (re.compile(r"\]\([^()\s]*\)"), "]"),
    (re.compile(r"https?://\S+"), _CODE),
)
_TOKEN = re.compile(r"[^\W_]+(?:['’.,/-][^\W_]+)*")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|al|sec|cf|vs|eq|no|approx)\.$")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*_]*(?=\s+[\"'(\[*_A-Z0-9\x00])|(?<=[.!?])[\"')\]*_]*\n")
_TABLE_RULE = re.compile(r"\s*\|[-:| ]+\|\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """Prose of consecutive lines: a paragraph, a list item, or a fragment (a heading or a table cell)."""

    lines: tuple[tuple[int, str], ...]
    is_fragment: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """One avoided word, or one long sentence, at a line of a file."""

    path: str
    line: int
    kind: str
    text: str


@dataclass(slots=True)
class Counts:
    """Counts over some prose: words, words of each group, sentences and long sentences, and their places."""

    words: int = 0
    sentences: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    hits: list[Hit] = field(default_factory=list)

    @property
    def long_share(self) -> float:
        """Share of sentences that have more than `MAX_SENTENCE_WORDS` words."""
        return self.groups["long"] / max(1, self.sentences)

    def per_1000(self, group: str) -> float:
        """Occurrences of a group's words per 1,000 words."""
        return 1000 * self.groups[group] / max(1, self.words)

    def add(self, other: Counts) -> None:
        """Add other counts to these."""
        self.words += other.words
        self.sentences += other.sentences
        self.groups += other.groups
        self.hits += other.hits

    def as_json(self) -> dict[str, float]:
        """Return the figures of one part for `--json`."""
        rates = {f"{group}_per_1000": round(self.per_1000(group), 2) for group in GROUPS}
        return {
            "words": self.words,
            "sentences": self.sentences,
            **rates,
            "long_sentence_share": round(self.long_share, 4),
        }


def without_code_blocks(text: str) -> Iterator[str]:
    r"""Yield the lines of Markdown or of a docstring; lines of fenced blocks, indented blocks and doctests are empty.

    >>> list(without_code_blocks("Text:\n\n    y = x\n\n- a\n    goes on\n\n>>> f()\n1\n\nEnd."))
    ['Text:', '', '', '', '- a', '    goes on', '', '', '', '', 'End.']
    """
    is_fenced = is_code = is_item = False
    after_blank = True
    for line in text.splitlines():
        is_blank = not line.strip()
        is_indented = line.startswith("    ")
        if _FENCE.match(line):
            is_fenced = not is_fenced
            yield ""
            continue
        if is_blank:
            is_code = False
        elif line.lstrip().startswith(">>>") or (is_indented and after_blank and not is_item):
            is_code = True
        elif not is_indented and not is_code:
            is_item = bool(_ITEM.match(line)) or (is_item and not after_blank)
        yield "" if is_fenced or is_code else line
        after_blank = is_blank


def without_inline_code(line: str) -> str:
    r"""Return a line without inline code, HTML and the addresses of links.

    >>> without_inline_code("See [the `k` page](https://example.org/x), <b>now</b>.")
    'See [the \x00 page],  now .'
    """
    for pattern, replacement in _INLINE:
        line = pattern.sub(replacement, line)
    return line


def blocks(text: str, first_line: int = 1) -> Iterator[Block]:
    r"""Yield the prose blocks of Markdown, or of a docstring without its indentation.

    >>> [block.lines for block in blocks("# Title\n\nOne `code` word.\n\n    y = x\n\n- a\n- b\n")]
    [((1, 'Title'),), ((3, 'One \x00 word.'),), ((7, 'a'),), ((8, 'b'),)]
    >>> [block.lines[0][1] for block in blocks("fdr   : false discovery rate\nlevel : of intervals")]
    ['fdr   : false discovery rate', 'level : of intervals']
    >>> [block.lines[0][1] for block in blocks("| a | `b` c |\n|---|---|\n| 1 | two |\n")]
    ['a', '\x00 c', '1', 'two']
    """
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate([*without_code_blocks(text), ""], first_line):
        is_fragment = line.lstrip().startswith(("#", "|"))
        if (is_fragment or not line.strip() or _ITEM.match(line) or _PARAMETER.match(line)) and paragraph:
            yield Block(tuple(paragraph))
            paragraph = []
        prose = without_inline_code(line).strip()
        if not is_fragment:
            if prose:
                paragraph.append((number, _ITEM.sub("", prose, count=1)))
        elif not _TABLE_RULE.match(line):
            for cell in prose.strip("|").split("|"):
                yield Block(((number, cell.strip("# ")),), is_fragment=True)


def sentences(block: Block) -> Iterator[tuple[int, str]]:
    r"""Yield each sentence of a block with the line on which it begins.

    >>> list(sentences(Block(((1, "One. Two, e.g. Three"), (2, "goes on."), (3, "\x00 ends.")))))
    [(1, 'One.'), (1, 'Two, e.g. Three goes on.'), (3, '\x00 ends.')]
    """
    text = "\n".join(line for _, line in block.lines)
    ends = (match for match in _SENTENCE_END.finditer(text) if not _ABBREVIATION.search(text[: match.start()]))
    starts = [0, *(match.end() for match in ends)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        sentence = text[start:end]
        skipped = len(sentence) - len(sentence.lstrip())
        if sentence.strip():
            yield block.lines[text.count("\n", 0, start + skipped)][0], " ".join(sentence.split())


def count(prose: Iterable[Block], path: str = "") -> Counts:
    r"""Count words, avoided words and sentences of blocks.

    >>> counts = count(blocks("Whoever it is: what nobody said.\n\n## What\n"))
    >>> counts.words, counts.sentences, dict(counts.groups)
    (7, 1, {'who': 1, 'what': 2, 'nobody': 1, 'say': 1})
    """
    counts = Counts()
    for block in prose:
        for line, text in block.lines:
            for word in words(text):
                counts.words += 1
                for group, members in GROUPS.items():
                    if word in members:
                        counts.groups[group] += 1
                        counts.hits.append(Hit(path, line, group, text))
        for line, sentence in sentences(block):
            is_long = len(_TOKEN.findall(sentence)) > MAX_SENTENCE_WORDS
            if block.is_fragment and not is_long and not sentence.endswith("."):
                continue
            counts.sentences += 1
            if is_long:
                counts.groups["long"] += 1
                counts.hits.append(Hit(path, line, "long", sentence))
    return counts


def words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case, without a part after an apostrophe.

    >>> list(words("What's 5 % of p95?"))
    ['what', 'of', 'p95']
    """
    for token in _TOKEN.findall(text.lower()):
        if any(letter.isalpha() for letter in token):
            yield re.split("['’]", token)[0]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    r"""Yield the line and the text of each docstring, those of attributes included.

    >>> list(docstrings("'Module.'\nX = 1\n'A limit.'\ndef f():\n    'Return 1.'\n"))
    [(1, 'Module.'), (3, 'A limit.'), (5, 'Return 1.')]
    """
    found = [
        (node.value.lineno, inspect.cleandoc(node.value.value))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return iter(sorted(found))


def document_paths(root: Path) -> list[Path]:
    """Return the Markdown files of the corpus."""
    pages = (path for path in sorted((root / "docs").rglob("*.md")) if "progress" not in path.relative_to(root).parts)
    return [root / "README.md", root / "CHANGELOG.md", *pages]


def count_document(path: Path, root: Path) -> Counts:
    """Count the prose of a Markdown file."""
    return count(blocks(path.read_text(encoding="utf-8")), str(path.relative_to(root)))


def count_docstrings(path: Path, root: Path) -> Counts:
    """Count the prose of the docstrings of a Python file."""
    counts = Counts()
    for line, text in docstrings(path.read_text(encoding="utf-8")):
        counts.add(count(blocks(text, line), str(path.relative_to(root))))
    return counts


def count_file(path: Path, root: Path) -> Counts:
    """Count the docstrings of a Python file, or the prose of a Markdown file."""
    return (count_docstrings if path.suffix == ".py" else count_document)(path, root)


def count_parts(root: Path = REPOSITORY) -> dict[str, Counts]:
    """Count the documents, and the docstrings of each package."""
    parts = {"documents": Counts()}
    for path in document_paths(root):
        parts["documents"].add(count_file(path, root))
    for package, folders in PACKAGES.items():
        counts = parts[f"docstrings of {package}"] = Counts()
        for folder in folders:
            for path in sorted((root / folder).rglob("*.py")):
                counts.add(count_file(path, root))
    return parts


def violations(parts: Mapping[str, Counts]) -> list[str]:
    """Return a sentence for each figure that exceeds its limit.

    >>> violations({"documents": count(blocks("What is this?"))})
    ['documents: 333.3 of "what" per 1,000 words, at most 2.0']
    """
    found = []
    for part, counts in parts.items():
        for group, limit in MAX_PER_1000.items():
            if (rate := counts.per_1000(group)) > limit:
                found.append(
                    f'{part}: {rate:.1f} of "{", ".join(sorted(GROUPS[group]))}" per 1,000 words, at most {limit}'
                )
        if counts.long_share > MAX_LONG_SHARE:
            found.append(
                f"{part}: {counts.long_share:.1%} of the sentences have more than {MAX_SENTENCE_WORDS} words, "
                f"at most {MAX_LONG_SHARE:.0%}"
            )
    return found


def table(parts: Mapping[str, Counts]) -> str:
    """Return the figures of all parts as a Markdown table."""
    head = ["", "words", *GROUPS, "sentences", f"> {MAX_SENTENCE_WORDS} words"]
    limits = ["limit", "", *(f"{limit:.1f}" for limit in MAX_PER_1000.values()), "", f"{MAX_LONG_SHARE:.1%}"]
    rows = [
        [
            part,
            f"{counts.words:,}",
            *(f"{counts.per_1000(group):.2f}" for group in GROUPS),
            f"{counts.sentences:,}",
            f"{counts.long_share:.1%}",
        ]
        for part, counts in parts.items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows, limits))


def worst(parts: Mapping[str, Counts], number: int) -> Iterator[str]:
    """Yield the files with the most hits, and each of their hits as path:line: kind: text."""
    hits = [hit for counts in parts.values() for hit in counts.hits]
    for path, total in Counter(hit.path for hit in hits).most_common(number):
        yield f"{path}: {total}"
        for hit in sorted((hit for hit in hits if hit.path == path), key=lambda hit: hit.line):
            yield f"  {hit.path}:{hit.line}: {hit.kind}: {hit.text.replace(_CODE, '`')}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Count avoided words and long sentences in documents and docstrings.")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list the hits of the N files with the most")
    parser.add_argument("--files", nargs="+", type=Path, help="count these Markdown or Python files only")
    parser.add_argument("--json", action="store_true", help="print the figures and the violations as JSON")
    options = parser.parse_args()
    if options.files:
        paths = [path.resolve() for path in options.files]
        parts = {str(path.relative_to(REPOSITORY)): count_file(path, REPOSITORY) for path in paths}
    else:
        parts = count_parts()
    if options.json:
        figures = {part: counts.as_json() for part, counts in parts.items()}
        print(json.dumps({"parts": figures, "violations": violations(parts)}, indent=2))  # noqa: T201
        return
    print(table(parts))  # noqa: T201
    found = [] if options.files else violations(parts)  # a small file may exceed a rate with one word
    for line in (*worst(parts, options.worst), *found):
        print(line)  # noqa: T201


if __name__ == "__main__":
    main()
