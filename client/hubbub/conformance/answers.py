"""Answers to an upload with what they mean: the table of vectors.json, status by body, from every machine on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from hubbub.conformance.scripted_aggregator import Answer, Content

FINAL = frozenset(("accept", "quarantine", "drop", "drop-metric"))
"""Actions after which a batch of one report is not sent again."""
_TEMPTING = (200, 202, 400, 410, 413, 422)
"""Statuses that look final."""


@dataclass(frozen=True, slots=True)
class AnswerCase:
    """An answer to the first attempt of a batch of one report.

    body   : what the body is, in words
    action : what it means for the batch: accept, quarantine, drop, drop-metric, retry, pause, pause-metric or hold-metric
    """

    body: str
    answer: Answer
    action: str

    @property
    def is_final(self) -> bool:
        """Whether the batch is not sent again."""
        return self.action in FINAL

    @property
    def description(self) -> str:
        """The answer in words."""
        return f"status {self.answer.status} with {self.body}"


@cache
def answer_cases() -> tuple[AnswerCase, ...]:
    """Return all answers: each status with each body. Where the table names no action, the batch is sent again."""
    table = json.loads(files("hubbub.conformance").joinpath("vectors.json").read_text("utf-8"))["answers"]
    return tuple(
        AnswerCase(
            body["body"],
            Answer(status, content=Content(body["media_type"], body["text"])),
            body["actions"].get(str(status), "retry"),
        )
        for body in table["bodies"]
        for status in table["statuses"]
    )


def answers_to_try() -> Iterator[AnswerCase]:
    """Yield the answers that a client is asked about: with each body those that are an aggregator's own, and one that looks final.

    Without a body, all statuses.
    """
    cases: dict[str, list[AnswerCase]] = {}
    for case in answer_cases():
        cases.setdefault(case.body, []).append(case)
    for number, same_body in enumerate(cases.values()):
        is_empty, tempting = not same_body[0].answer.content.text, _TEMPTING[number % len(_TEMPTING)]
        yield from (case for case in same_body if is_empty or case.action != "retry" or case.answer.status == tempting)
