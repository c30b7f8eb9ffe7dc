"""Adapter of the Python client for `hubbub conformance`: a model for clients in other languages.

    hubbub conformance --command "python examples/conformance_adapter.py"

Reads a JSON object from each line of its input and answers by one line. Calls of protocol 1:

    digest  definition                                      -> digest
    encode  definition, secret, value, period, random       -> cohort, bits
    seal    definition, secret, value                       -> sealed: what the client keeps of the value
    batch   definition, batch_id, period, group, reports    -> body
    start   definitions, directory, url, now, groups, policy the client of a directory, whose clock stands at a time
    consent level                                           "on" or "off"
    record  metric, value
    advance now                                             sets the clock
    flush                                                   sends all that is due
    stop                                                    ends the client

Bytes are hex. `random` is all that the generator of the operating system would return; without it, the client asks that generator. The answer to a definition or a value that a client
refuses is {"refused": true}, and to an unknown call {"unknown": true}.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Literal
from uuid import UUID

from hubbub import Batch, Client, Definitions, Encoder, Group, HubbubError, Metric, Policy, Secret
from hubbub.encoding.sealed_values import Sealer
from hubbub.metrics.kinds import kind_from_dict
from hubbub.metrics.periods import period_number
from hubbub.testing import Seams


def read_metric(fields: dict[str, Any]) -> Metric:
    group = None if fields.get("group") is None else Group.from_dict(fields["group"])
    kind = kind_from_dict(fields)
    return Metric(fields["name"], kind, fields["period"], fields["hold"], group=group).require_collectable()


class Scripted:
    """Generator that returns given bytes."""

    def __init__(self, left: bytes) -> None:
        self.left = left

    def __call__(self, num_bytes: int) -> bytes:
        taken, self.left = self.left[:num_bytes], self.left[num_bytes:]
        return taken


def digest(definition: dict[str, Any]) -> dict[str, Any]:
    return {"digest": read_metric(definition).digest}


def encode(
    definition: dict[str, Any], secret: str, value: Any, period: str, random: str | None = None
) -> dict[str, Any]:
    metric = read_metric(definition)
    random_bytes = os.urandom if random is None else Scripted(bytes.fromhex(random))
    encoder = Encoder(metric, Secret(bytes.fromhex(secret)), random_bytes)
    epoch = None if metric.hold is None else period_number(metric.period, period) // metric.hold
    report = encoder.encode(tuple(value) if isinstance(value, list) else value, epoch)
    return {"cohort": report.cohort, "bits": report.to_bytes().hex()}


def seal(definition: dict[str, Any], secret: str, value: Any) -> dict[str, Any]:
    metric, key = read_metric(definition), Secret(bytes.fromhex(secret))
    return {"sealed": Sealer(metric, key, os.urandom).seal(Encoder(metric, key).bloom_bits(value)).hex()}


def batch(
    definition: dict[str, Any], batch_id: str, period: str, group: str, reports: list[dict[str, Any]]
) -> dict[str, Any]:
    metric = read_metric(definition)
    cohorts = bytes(report["cohort"] for report in reports)
    rows = b"".join(bytes.fromhex(report["bits"]) for report in reports)
    made = Batch(UUID(batch_id), metric.name, metric.digest, str(date.fromisoformat(period)), cohorts, rows, group)
    return {"body": made.to_json().decode()}


class Session:
    """A client that runs."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        self.client: Client | None = None

    def start(
        self,
        definitions: list[dict[str, Any]],
        directory: str,
        url: str,
        now: str,
        groups: dict[str, str] | None = None,
        policy: dict[str, float] | None = None,
    ) -> dict[str, Any]:
        self.now = datetime.fromisoformat(now)
        metrics = Definitions([Metric.from_dict(fields) for fields in definitions])
        self.client = Client(
            metrics,
            directory,
            url,
            policy=Policy(**policy or {}),
            groups=groups,
            environment={},
            seams=Seams(clock=lambda: self.now),
        )
        return {}

    def consent(self, level: Literal["on", "off"]) -> dict[str, Any]:
        self._client.set_consent(level)
        return {}

    def record(self, metric: str, value: Any) -> dict[str, Any]:
        self._client.record(metric, value)
        return {}

    def advance(self, now: str) -> dict[str, Any]:
        self.now = datetime.fromisoformat(now)
        return {}

    def flush(self) -> dict[str, Any]:
        return {"delivered": self._client.flush(30)}

    def stop(self) -> dict[str, Any]:
        if self.client is not None:
            self.client.close()
        self.client = None
        return {}

    @property
    def _client(self) -> Client:
        if self.client is None:
            raise KeyError("start")
        return self.client


SESSION = Session()
CALLS: dict[str, Callable[..., dict[str, Any]]] = {"digest": digest, "encode": encode, "batch": batch, "seal": seal}
CALLS_OF_A_SESSION = ("start", "consent", "record", "advance", "flush", "stop")


def answer(request: dict[str, Any], session: Session = SESSION) -> dict[str, Any]:
    name = request.pop("call")
    call: Callable[..., dict[str, Any]] | None = (
        getattr(session, name) if name in CALLS_OF_A_SESSION else CALLS.get(name)
    )
    if call is None:
        return {"unknown": True}
    try:
        return call(**request)
    except (HubbubError, KeyError, TypeError):
        return {"refused": True}


def run() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    run()
