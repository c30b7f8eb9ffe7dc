"""The page of the conformance rules is generated, and its sentences stand on the pages that it names.

HUBBUB_TEST_PIN=1 pytest tests/contracts/test_docs_conformance.py          rewrites docs/reference/conformance.md
"""

from __future__ import annotations

import os
import re

from hubbub.conformance.rules import EncodingRule, all_rules
from tests.client.conformance.faulty_clients import FAULTY_CLIENTS
from tests.support.paths import DOCS

PAGE = DOCS / "reference" / "conformance.md"


def _text(words: str) -> str:
    return words.replace("|", "\\|")


def _faulty_clients(rule: int) -> str:
    return "; ".join(faulty.words for faulty in FAULTY_CLIENTS if faulty.rule == rule)


def page() -> str:
    """Return docs/reference/conformance.md."""
    encoding = [rule for rule in all_rules() if isinstance(rule, EncodingRule)]
    cases = [
        f"| {rule.number} | {rule.title} | {rule.section} | {len(rule.cases)} | {_text(_faulty_clients(rule.number))} |"
        for rule in encoding
    ]
    scenarios = []
    for rule in all_rules():
        if not isinstance(rule, EncodingRule):
            sentence = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", rule.sentence)  # its links are those of another folder
            scenarios.append(
                f"| {rule.number} | {_text(rule.title)} | {rule.section}: {_text(sentence)} | {_text(_faulty_clients(rule.number))} |"
            )
    return "\n".join(
        [
            "# Rules of the conformance kit",
            "",
            "This page is generated from `client/hubbub/conformance` and `tests/client/conformance/faulty_clients.toml`.",
            "[`hubbub conformance`](../how-to/other-languages.md#conformance) tests each rule.",
            f"Each of the {len(FAULTY_CLIENTS)} faulty clients is the Python client with a changed line, and the first rule that it breaks is that of its row.",
            "`pytest tests/client/conformance/test_faulty_clients.py` shows it for twelve of them at random, and `make soak` for all.",
            "",
            "## Encoding",
            "",
            "Each case is a request and the answer that a client must give.",
            "",
            "| rule | title | section | cases | faulty clients |",
            "|---|---|---|---|---|",
            *cases,
            "",
            "## Days of a client",
            "",
            "A scenario tests each of these rules on one history, so a client that passes can still break the rule in another history.",
            "",
            "| rule | title | sentence | faulty clients |",
            "|---|---|---|---|",
            *scenarios,
            "",
            "Rules 114, 138 to 140, 142, 144, 145 and 147 are statistical: a correct client fails one of them with a probability below 1e-7.",
            "They find gross faults only, such as reports that all leave in one quarter of a day.",
            "",
            "## What the kit does not find",
            "",
            "- A generator that is weak without repeating, such as `Math.random` or the Mersenne Twister with a random seed.",
            "- A bias of the noise below about 1 % of the bits, or in some reports only: [`hubbub audit`](../how-to/auditing.md) looks for these.",
            "- Faults that need another history: months of reports, longer outages, damaged or lost files, and files that a client writes anew after hundreds of recordings.",
            "- What an adapter has no call for: consent `local`, subjects, copied directories, limits of the queue, `detached`, environment variables, batches of several reports, and a process that holds the directory's lock.",
            "- Whether late reports leave at separate times of the first hour after a start: `flush` sends them at once.",
            "- Values that JSON does not have: NaN, infinities, and numbers beyond the largest double.",
            "- The order of batches after a failure, a clock that is one or two days behind, and whose `Date` a client believes.",
            "",
        ]
    )


def test_page_is_generated() -> None:
    if os.environ.get("HUBBUB_TEST_PIN") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_each_sentence_stands_on_its_page() -> None:
    for rule in all_rules():
        if not isinstance(rule, EncodingRule):
            name, _, section = rule.section.partition(", ")
            (found,) = DOCS.rglob(name) if name != "client.md" else [DOCS / "how-to" / "client.md"]
            text = found.read_text(encoding="utf-8")
            assert rule.sentence in text, f"rule {rule.number}: {rule.sentence}"
            assert f" {section}\n" in text, f"rule {rule.number}: {section}"


def test_each_rule_has_a_faulty_client() -> None:
    assert {faulty.rule for faulty in FAULTY_CLIENTS} == {rule.number for rule in all_rules()}
