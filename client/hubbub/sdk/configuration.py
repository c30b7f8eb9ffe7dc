"""Configuration of a client: the arguments of `Client` and the environment variables of its process, checked.

    DO_NOT_TRACK, HUBBUB_CONSENT   lower the consent, see `hubbub.consent`
    HUBBUB_URL                     URL of the aggregator, instead of the app's
    HUBBUB_DEBUG                   debug mode, see `hubbub.sdk.transparency.debug_mode`
    CI and others                  pause the client, see `hubbub.sdk.runtime.automation`

A wrong argument raises ParameterError. No environment variable raises an error: one that is not valid is logged and selects the setting
that sends less. An empty variable is not set. Nothing here writes, logs or connects.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from hubbub.consent import Consent, consent_limit, consent_variable_warning
from hubbub.errors import ParameterError
from hubbub.metrics.definitions import Definitions, load_definitions
from hubbub.number_checks import check_number
from hubbub.privacy.policy import Policy
from hubbub.sdk.recording.batch_builder import Limits
from hubbub.text import did_you_mean
from hubbub.wire.urls import check_url

T = TypeVar("T")
Durability = Literal["process", "power", "memory"]
"""What a recorded value survives: a killed process, a loss of power, or neither because it is in memory only."""

Authorization = Callable[[], str]
"""Function of the app that returns a report token, without "Bearer"."""

MAX_TEXT_CHARACTERS = 1 << 16

_TRUE_VALUES = ("1", "true", "yes", "on")
_FALSE_VALUES = ("", "0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a client does: the arguments of `Client`, changed by the environment.

    definitions   : definitions of the app's metrics
    directory     : state directory, absolute
    unresolved    : why the machine has no absolute path for it; empty if it has
    url           : URL of the aggregator, that of HUBBUB_URL if it is set
    consent_limit : highest consent level of this process
    is_debug      : whether debug mode replaces the state directory and the transport
    paused        : why the client records, stores and sends nothing; empty if it is not paused
    messages      : (level, text) of what the environment changed, for the log

    The other fields are the arguments of `Client`.
    """

    definitions: Definitions
    directory: Path
    unresolved: str
    url: str
    durability: Durability
    policy: Policy
    limits: Limits
    groups: Mapping[str, str]
    detached: bool
    per_subject: bool
    renew_identity_when_copied: bool
    ca_certs: str | None
    authorization: Authorization | None
    consent_limit: Consent
    is_debug: bool
    paused: str
    messages: tuple[tuple[int, str], ...]

    @property
    def is_in_memory(self) -> bool:
        """Whether the client keeps its state in memory, and reads and writes no file of its own."""
        return self.durability == "memory" or bool(self.paused)


def configure(
    definitions: str | Path | Definitions,
    state: str | Path,
    url: str,
    environment: Mapping[str, str],
    *,
    durability: Durability,
    policy: Policy | None,
    limits: Limits | None,
    groups: Mapping[str, str] | None,
    detached: bool,
    per_subject: bool,
    renew_identity_when_copied: bool,
    ca_certs: str | None,
    authorization: Authorization | None,
    automation: str | None,
    platform: str,
    has_transport: bool,
    has_disk: bool,
) -> Configuration:
    """Return the configuration of a client.

    platform                : name of an operating system that the client does not support, which pauses it in any case; else ""
    automation              : sign that a machine runs the program, which pauses the client, but not in debug mode; None: no sign
    has_transport, has_disk : whether the app gave its own. The URL is not checked if its own transport is used
    """
    if durability not in ("process", "power", "memory"):
        raise ParameterError(f'durability must be "process", "power" or "memory", got {durability!r}')
    if detached and (durability == "memory" or has_transport or has_disk):
        raise ParameterError(
            "detached=True starts a process that reads `state` and sends to `url`, so it cannot be combined with "
            'durability="memory" or a transport or disk for tests: omit one of them'
        )
    if authorization is not None and not callable(authorization):
        raise ParameterError(
            f"authorization must be a function that returns a report token, got {type(authorization).__name__}: pass the function, not a token"
        )
    if authorization is not None and (detached or has_transport):
        raise ParameterError(
            "authorization is called by this process for its own requests, so it cannot be combined with detached or a transport for tests: omit one of them"
        )
    settings = environment_settings(environment)
    messages = [(logging.WARNING, warning) for warning in settings.warnings]
    if settings.url is not None:
        messages.append((logging.INFO, f"HUBBUB_URL is set: reports are sent to {settings.url}"))
    is_debug = settings.is_debug and not platform
    paused = "" if automation is None or is_debug else f"automation ({automation})"
    level, rest = logging.INFO, "Consent stays as it is"
    if platform:
        paused, level, rest = f"platform ({platform})", logging.WARNING, "hubbub runs on Linux and macOS"
    if paused:
        messages.append((level, f"paused, {paused}: this process records, stores and sends nothing. {rest}"))
    definitions = definitions if isinstance(definitions, Definitions) else load_definitions(definitions)
    directory, unresolved = _absolute("state", state)
    configuration = Configuration(
        definitions=definitions,
        directory=directory,
        unresolved=unresolved,
        url=url if settings.url is None else settings.url,
        durability=durability,
        policy=_instance_or_default("policy", policy, Policy),
        limits=_instance_or_default("limits", limits, Limits),
        groups=_check_groups({} if groups is None else groups, definitions),
        detached=detached and not paused,
        per_subject=per_subject,
        renew_identity_when_copied=renew_identity_when_copied,
        ca_certs=_check_ca_certs(ca_certs),
        authorization=authorization,
        consent_limit=Consent.OFF if paused else settings.consent,
        is_debug=is_debug,
        paused=paused,
        messages=tuple(messages),
    )
    if is_debug or not has_transport:
        check_url(configuration.url)
    return configuration


class EnvironmentSettings(NamedTuple):
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


def _absolute(name: str, path: str | Path) -> tuple[Path, str]:
    """Return an absolute path, which stays valid when the program changes its working directory, and why there is none.

    That a user has no home directory, or that the working directory was deleted, is a condition of the machine and no wrong argument.
    """
    if not isinstance(path, str | Path) or not str(path).strip() or "\0" in str(path):
        raise ParameterError(f"{name} must be a path that is not empty, got {path!r}: pass a str or a Path")
    try:
        return Path(path).expanduser().absolute(), ""
    except (OSError, RuntimeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem).rstrip(".")
        return Path(path), f"{str(path)!r} cannot be resolved ({reason}): pass an absolute path as `{name}`"


def _check_groups(groups: Mapping[str, str], definitions: Definitions) -> Mapping[str, str]:
    """Return the labels of the app, checked: one for each group of the definitions."""
    is_mapping = isinstance(groups, Mapping)
    if not is_mapping or not all(isinstance(text, str) for item in groups.items() for text in item):
        raise ParameterError(f'groups must be texts by name, such as {{"version": "1.4.2"}}, got {groups!r}')
    needed = {metric.group.name: metric.name for metric in definitions.values() if metric.group is not None}
    for name, metric in needed.items():
        if name not in groups:
            raise ParameterError(f'groups has no {name!r}, by which {metric} is divided: pass groups={{"{name}": ...}}')
    unknown = next((name for name in groups if name not in needed), None)
    if unknown is not None:
        listed = f"the definitions have {', '.join(needed)}" if needed else "no metric has a group"
        raise ParameterError(f"groups has {unknown!r}, but {listed}.{did_you_mean(unknown, needed)}")
    return dict(groups)


def _check_ca_certs(ca_certs: str | None) -> str | None:
    """Return the absolute path of a file of certificates; None stays None."""
    if ca_certs is None:
        return None
    path, _ = _absolute("ca_certs", ca_certs)
    if not os.access(path, os.R_OK) or not path.is_file():
        raise ParameterError(f"ca_certs must be a readable PEM file of certificates, got {ca_certs!r}")
    return str(path)


def _instance_or_default(name: str, given: T | None, kind: type[T]) -> T:
    """Return the given instance, or a default one for None."""
    if not isinstance(given, kind | None):
        raise ParameterError(f"{name} must be hubbub.{kind.__name__}(...), got {given!r}")
    return given or kind()


def check_consent_text(agreed: str) -> str:
    """Return the text of a consent, checked."""
    if not isinstance(agreed, str) or len(agreed) > MAX_TEXT_CHARACTERS:
        description = f"one of {len(agreed)}" if isinstance(agreed, str) else f"{type(agreed).__name__}: pass str(text)"
        raise ParameterError(f"text must be a string of at most {MAX_TEXT_CHARACTERS} characters, got {description}")
    return agreed


def check_timeout(timeout: float) -> float:
    """Return a timeout in seconds, checked, and at most the longest one that threads can wait."""
    check_number("timeout", timeout, "[-inf, inf]", hint="pass a number of seconds")
    return float(min(timeout, threading.TIMEOUT_MAX / 2))


def check_subject_id(subject_id: str) -> str:
    """Return the id of a subject, checked."""
    if not isinstance(subject_id, str) or not subject_id:
        given = "''" if isinstance(subject_id, str) else type(subject_id).__name__
        raise ParameterError(
            f"subject_id must be a string that is not empty, got {given}: pass the id of one person, and do not "
            "record for a person without an id"
        )
    return subject_id
