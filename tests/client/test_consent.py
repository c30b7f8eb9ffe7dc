"""Consent: off until somebody agrees, and off means gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hubbub import Consent, ParameterError
from hubbub.consent import allowed_by, lesser
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, require_balanced


def everything_in(place: Path) -> bytes:
    return b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())


def test_nothing_is_recorded_before_somebody_agreed(rig: Rig) -> None:
    client = rig.client()
    client.record("homepage", "https://example.org/")
    assert client._uploader is None  # no thread, no network code
    rig.clock.move(days=3)
    assert deliver(client) == 0
    assert client.accounting()["ignored"]["consent"] == 1
    assert not (rig.state / "secret").exists()
    require_balanced(client.accounting())


def test_consent_is_remembered_and_other_clients_on_the_directory_see_it_at_once(rig: Rig) -> None:
    first, second = rig.agreed(), rig.client()
    first.record("homepage", "https://example.org/")
    assert second.consent is Consent.ON
    second.set_consent("off")
    first.record("homepage", "https://example.org/")
    assert first.accounting()["ignored"]["consent"] == 1
    assert (first._recorder._secret, first._recorder._channels) == (
        None,
        {},
    )  # nor is the secret in its memory any more
    assert rig.client().consent is Consent.OFF


def test_local_makes_reports_and_sends_none(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("local")
    client.record("homepage", "https://example.org/")
    rig.clock.move(days=3)
    assert client.flush(5)
    assert (client.accounting()["formed"], rig.transport.bodies) == (3, [])
    client.set_consent("on")
    assert deliver(client) == 4  # three that waited, and today's
    assert len(rig.transport.batches) == 4


def test_off_erases_what_waits_the_drafts_and_the_secret_and_keeps_the_ledger(rig: Rig) -> None:
    client = rig.agreed(HOMEPAGE, SURVEY)
    client.record("homepage", "https://example.org/")
    rig.clock.move(days=1)
    client.record("homepage", "https://example.org/")
    with client._journal as state:
        client._recorder.form(state)
        rows = [waiting.batch.rows for waiting in state.waiting.values()]
        rows += [bytes.fromhex(draft.row) for draft in state.drafts.values()]
        secret = (rig.state / "secret").read_bytes()
        sealed = [account.sealed for account in state.accounts.values()]
    client.set_consent("off")
    left = everything_in(rig.state)
    assert secret not in left
    assert not any(row.hex().encode() in left for row in rows if len(row) > 1)
    assert not any(each.encode() in left for each in sealed)
    counts = client.accounting()
    assert (counts["dropped"]["consent"], counts["spooled"]) == (2, 0)
    require_balanced(counts)
    with client._journal as state:
        assert [account.units for account in state.accounts.values()] == [1, 1]


def test_on_again_is_a_new_secret_on_the_old_ledger(rig: Rig) -> None:
    """The same value under a new secret is noised anew, so it is charged anew."""
    client = rig.agreed()
    client.record("homepage", "https://example.org/")
    deliver(client)
    client.set_consent("off")
    client.set_consent("on")
    rig.clock.move(days=1)
    client.record("homepage", "https://example.org/")
    deliver(client)
    with client._journal as state:
        (account,) = state.accounts.values()
        assert (account.units, state.enrolments) == (2, 2)


def test_what_was_in_flight_when_consent_ended_is_neither_counted_twice_nor_kept(rig: Rig) -> None:
    client = rig.agreed()
    take = rig.transport.send

    def withdrawn_meanwhile(body: bytes, wanted: object) -> object:
        client.set_consent("off")
        return take(body)

    rig.transport.send = withdrawn_meanwhile  # type: ignore[method-assign,assignment]
    client.record("homepage", "https://example.org/")
    assert deliver(client) == 1
    counts = client.accounting()
    assert (counts["dropped"]["consent"], counts["acknowledged"]) == (1, 0)
    require_balanced(counts)


@pytest.mark.parametrize("variable", ["DO_NOT_TRACK", "HUBBUB_CONSENT"])
def test_the_environment_silences_a_client_without_erasing_anything(variable: str, rig: Rig) -> None:
    rig.agreed().close()
    silent = rig.client(environment={variable: "1"})
    assert silent.consent is Consent.OFF
    silent.record("homepage", "https://example.org/")
    assert silent.accounting()["ignored"]["consent"] == 1
    rig.clock.move(days=2)
    assert silent.flush(5)
    assert rig.transport.bodies == []
    assert (rig.state / "secret").exists()


@pytest.mark.parametrize("agreed", list(Consent))
def test_the_environment_can_only_take_back(agreed: Consent) -> None:
    for environment in ({"HUBBUB_CONSENT": "on", "DO_NOT_TRACK": "0"}, {}):
        assert lesser(agreed, allowed_by(environment)) is agreed
    assert lesser(agreed, allowed_by({"HUBBUB_CONSENT": "local"})) in (Consent.OFF, Consent.LOCAL)
    for environment in ({"HUBBUB_CONSENT": "yes please"}, {"HUBBUB_CONSENT": "on", "DO_NOT_TRACK": "true"}):
        assert lesser(agreed, allowed_by(environment)) is Consent.OFF


def test_a_kill_between_erasing_and_rewriting_is_made_good_at_the_next_start(rig: Rig) -> None:
    client = rig.agreed()
    client.record("homepage", "https://example.org/")
    with client._journal as state:
        (draft,) = state.drafts.values()
        client._journal.write({"e": "consent", "to": "off", "text": ""}, {"e": "erased"})
    client.close()
    rig.client()
    assert draft.row.encode() not in everything_in(rig.state)


def test_the_text_somebody_agreed_to_is_kept(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("on", text="privacy notice of 2026-11")
    with rig.client()._journal as state:
        assert state.consent_text == "privacy notice of 2026-11"
    with pytest.raises(ParameterError, match="consent must be one of off, local, on, got 'maybe'"):
        client.set_consent("maybe")


def test_the_journal_is_lines_of_json_that_hold_no_value(rig: Rig) -> None:
    client = rig.agreed()
    client.record("homepage", "https://canary.example.org/")
    assert b"canary" not in everything_in(rig.state)
    assert json.dumps("https") not in everything_in(rig.state).decode("latin-1")
