"""Configuration: what a client does follows from arguments and environment alone, and computing it has no effect."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub import Consent, Definitions, Limits, ParameterError, Policy
from hubbub.sdk.configuration import Configuration, configure
from tests.client.conftest import HOMEPAGE

DEFINITIONS = Definitions([HOMEPAGE])
URL, OTHER_URL = "https://telemetry.example.org", "https://other.example.org"
ARGUMENTS: dict[str, Any] = {
    "durability": "process",
    "policy": None,
    "limits": None,
    "groups": None,
    "detached": False,
    "per_subject": False,
    "renew_identity_when_copied": False,
    "ca_certs": None,
    "authorization": None,
    "automation": None,
    "platform": "",
    "has_transport": False,
    "has_disk": False,
}


def configured(environment: dict[str, str], state: Path, url: str = URL, **arguments: Any) -> Configuration:
    return configure(DEFINITIONS, state, url, environment, **ARGUMENTS | arguments)


@pytest.mark.parametrize(
    ("debug", "consent", "url"), list(itertools.product([None, "0", "1"], [None, "local", "off"], [None, OTHER_URL]))
)
def test_environment_changes_its_own_fields_only(
    debug: str | None, consent: str | None, url: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"HUBBUB_DEBUG": debug, "HUBBUB_CONSENT": consent, "HUBBUB_URL": url}
    environment = {name: value for name, value in given.items() if value is not None}
    configuration = configured(environment, tmp_path / "state", per_subject=True)
    expected = replace(
        configured({}, tmp_path / "state", per_subject=True),
        is_debug=debug == "1",
        consent_limit=Consent(consent or "on"),
        url=url or URL,
        messages=((logging.INFO, f"HUBBUB_URL is set: reports are sent to {url}"),) if url else (),
    )
    assert configuration == expected
    assert (configuration.policy, configuration.limits) == (Policy(), Limits())
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []


@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"durability": "disk"},
        {"detached": True, "durability": "memory"},
        {"detached": True, "has_transport": True},
        {"detached": True, "has_disk": True},
        {"policy": "strict"},
        {"limits": 5},
        {"ca_certs": "missing.pem"},
        {"state": ""},
        {"url": "http://telemetry.example.org"},
    ],
)
def test_wrong_argument_is_refused_also_in_debug_mode(debug: str, wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ParameterError):
        configured({"HUBBUB_DEBUG": debug}, **{"state": tmp_path} | wrong)


def test_url_of_an_own_transport_is_its_own_business(tmp_path: Path) -> None:
    assert configured({}, tmp_path, "queue:reports", has_transport=True).url == "queue:reports"
