"""The recorded value, its permanent bits and the secret are in no file, log, traceback, `repr` or request."""

from __future__ import annotations

import io
import logging
import traceback
from pathlib import Path

import pytest

from hubbub import Client, Metric, Params
from hubbub.client import collaborators
from hubbub.encoding.responses import PermanentResponse
from hubbub.metrics.kinds import BloomBits
from hubbub.sdk.runtime.error_guard import report_failure
from hubbub.sdk.upload.retry_policy import NO_RESPONSE
from hubbub.testing import deliver
from tests.client.conftest import Rig

CANARY = "canary-5e9b1f0c"
METRIC = Metric.string(  # k = 128: none of the searched texts occurs by chance
    "homepage", Params(num_bits=128, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.5)
)


def forms(data: bytes) -> list[bytes]:
    import base64

    return [data, data.hex().encode(), data.hex().upper().encode(), base64.b64encode(data), base64.b64encode(data)[:-3]]


def hidden(client: Client, secret: bytes) -> list[bytes]:
    encoder = next(iter(collaborators(client).encoders._encoders.values())).encoder
    bloom = encoder.bloom_bits(CANARY)
    prr = PermanentResponse(METRIC, collaborators(client).encoders._secret or pytest.fail("no secret"))(bloom)
    secrets = [CANARY.encode(), str(prr).encode(), str(bloom).encode()]
    for number in (prr, bloom):
        secrets += forms(number.to_bytes(16, "little")) + forms(number.to_bytes(16, "big"))
    return secrets + forms(secret)


def test_value_permanent_bits_and_secret_never_leak(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        rig.transport.responses = [NO_RESPONSE]
        client = rig.agreed(METRIC)
        for day in range(3):
            client.record("homepage", CANARY)
            client.record("homepage", CANARY + "\ud800" if day == 1 else CANARY)
            deliver(client)
            rig.clock.move(days=1)
        collaborators(client).compactor.compact(always=True)
        client.record("homepage", CANARY)
        subject = client.subject(CANARY)
        subject.record("homepage", CANARY)
    secret = (rig.state / "secret").read_bytes()
    outputs = [file.read_bytes() for file in rig.state.rglob("*") if file.is_file() and file.name != "secret"]
    outputs += [caplog.text.encode(), *rig.transport.bodies]
    outputs += [
        repr(shown).encode() for shown in (client, subject, collaborators(client).encoders._secret, client.accounting())
    ]
    everything = b"\n".join(outputs)
    assert len(rig.transport.bodies) >= 3
    for needle in hidden(client, secret):
        assert needle not in everything


def test_internal_error_is_logged_without_message_and_not_raised(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rig.agreed(METRIC)

    def broken(*_: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(collaborators(client).recorder, "record", broken)
    with pytest.raises(RuntimeError):  # tests raise internal errors
        client.record("homepage", CANARY)
    monkeypatch.setattr("hubbub.sdk.runtime.error_guard.suppress_internal_errors", True)
    with caplog.at_level(logging.DEBUG):
        client.record("homepage", CANARY)
    assert "RuntimeError in broken" in caplog.text
    assert CANARY not in caplog.text


def test_traceback_through_record_has_no_value(rig: Rig) -> None:
    client = rig.agreed(METRIC)
    output = io.StringIO()
    try:
        client.set_consent("maybe")  # type: ignore[arg-type]
    except ValueError:
        traceback.print_exc(file=output)
    with pytest.raises(RuntimeError):
        report_failure(RuntimeError())
    assert CANARY not in output.getvalue()


def test_subjects_have_their_own_secret_cohort_drafts_and_ledger(rig: Rig, tmp_path: Path) -> None:
    server = rig.agreed(METRIC, per_subject=True)
    for name in ("ada", "bob", "eve"):
        server.subject(name).record("homepage", CANARY)
        server.subject(name).record("homepage", "other")
    with collaborators(server).journal as state:
        assert len(state.accounts) == len(state.drafts) == 3
        assert "" not in state.subjects
    encoders = [cached.encoder for cached in collaborators(server).encoders._encoders.values()]
    assert len({encoder._permanent_response(BloomBits(5)) for encoder in encoders}) == 3
    assert deliver(server) == 1  # their reports of one metric and period are sent in one batch
    (batch,) = rig.transport.batches
    assert sorted(batch.cohorts) == sorted(encoder.cohort for encoder in encoders)
    rig.clock.move(days=1)
    assert deliver(server) == 1  # a report without a value is sent for each
    assert len(rig.transport.batches[1]) == 3
    counts = server.accounting()
    assert (counts.recorded, counts.chosen, counts.formed) == (6, 3, 6)


def test_only_the_ledger_of_a_subject_survives_off_and_on(rig: Rig) -> None:
    server = rig.agreed(METRIC, per_subject=True)
    server.subject("ada").record("homepage", CANARY)
    server.subject("bob").record("homepage", CANARY)
    deliver(server)
    server.set_consent("off")
    server.set_consent("on")
    rig.clock.move(days=1)
    server.subject("ada").record("homepage", CANARY)
    assert deliver(server) == 1
    with collaborators(server).journal as state:
        assert sorted(account.units for account in state.accounts.values()) == [1, 2]
    assert len(rig.transport.batches[-1]) == 1  # bob recorded nothing after that
