"""Settings of one process from environment variables.

    DO_NOT_TRACK, HUBBUB_CONSENT   lower the consent, see `hubbub.consent`
    HUBBUB_URL                     URL of the aggregator, instead of the app's
    HUBBUB_DEBUG                   debug mode, see `hubbub.sdk.transparency.debug_mode`

No value raises an error. A value that is not valid is logged and selects the setting that sends less. An empty variable is not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hubbub.consent import Consent, consent_limit, consent_variable_warning
from hubbub.errors import ParameterError
from hubbub.wire.urls import check_url

_TRUE_VALUES = ("1", "true", "yes", "on")
_FALSE_VALUES = ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """Settings of the environment.

    consent  : highest consent level of this process
    url      : URL of the aggregator, or None to use the app's
    is_debug : whether debug mode is on
    warnings : one message for each variable that is not valid
    """

    consent: Consent
    url: str | None
    is_debug: bool
    warnings: tuple[str, ...]


def environment_settings(environment: Mapping[str, str]) -> EnvironmentSettings:
    """Return the settings of environment variables.

    >>> environment_settings({"HUBBUB_URL": "https://telemetry.example.org/"}).url
    'https://telemetry.example.org'
    >>> environment_settings({"HUBBUB_URL": "http://example.org"}).consent
    <Consent.OFF: 'off'>
    """
    consent, warnings = consent_limit(environment), [consent_variable_warning(environment)]
    given_url, url = environment.get("HUBBUB_URL", "").strip(), None
    if given_url:
        try:
            url = check_url(given_url)
        except ParameterError:  # its message has the URL, which can contain a token
            consent = Consent.OFF
            warnings.append(
                f"HUBBUB_URL ({len(given_url)} characters) must be an https URL, or http to a loopback address, without user name, query "
                "and fragment. This process records and sends nothing: correct or unset HUBBUB_URL"
            )
    debug = environment.get("HUBBUB_DEBUG", "").strip().lower()
    if debug not in (*_TRUE_VALUES, *_FALSE_VALUES):
        warnings.append(
            f"HUBBUB_DEBUG ({len(debug)} characters) must be one of {', '.join(filter(None, (*_TRUE_VALUES, *_FALSE_VALUES)))}: "
            "debug mode is on, and no report leaves this machine"
        )
    return EnvironmentSettings(consent, url, debug not in _FALSE_VALUES, tuple(filter(None, warnings)))
