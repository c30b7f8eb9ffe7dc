"""Validate arguments of `Client`."""

from __future__ import annotations

import math
import os
import threading
from numbers import Real
from pathlib import Path
from typing import TypeVar

from hubbub.errors import ParameterError

T = TypeVar("T")
MAX_TEXT_CHARACTERS = 1 << 16


def absolute(name: str, path: str | Path) -> Path:
    """Return an absolute path, which stays valid when the program changes its working directory."""
    if not isinstance(path, str | Path) or not str(path).strip() or "\0" in str(path):
        raise ParameterError(f"{name} must be a path that is not empty, got {path!r}: pass a str or a Path")
    try:
        return Path(path).expanduser().absolute()
    except (OSError, RuntimeError) as problem:
        raise ParameterError(
            f"{name}: the path {str(path)!r} cannot be resolved ({problem}): pass an absolute path"
        ) from None


def check_ca_certs(ca_certs: str | None) -> str | None:
    """Return the absolute path of a file of certificates; None stays None."""
    if ca_certs is None:
        return None
    path = absolute("ca_certs", ca_certs)
    if not os.access(path, os.R_OK) or not path.is_file():
        raise ParameterError(f"ca_certs must be a readable PEM file of certificates, got {ca_certs!r}")
    return str(path)


def instance_or_default(name: str, given: T | None, kind: type[T]) -> T:
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
    if isinstance(timeout, Real) and not isinstance(timeout, bool):
        seconds = float(min(timeout, threading.TIMEOUT_MAX / 2))
        if not math.isnan(seconds):
            return seconds
    raise ParameterError(f"timeout must be a number of seconds, got {timeout!r}")


def check_subject_id(subject_id: str) -> str:
    """Return the id of a subject, checked."""
    if not isinstance(subject_id, str) or not subject_id:
        given = "''" if isinstance(subject_id, str) else type(subject_id).__name__
        raise ParameterError(
            f"subject_id must be a string that is not empty, got {given}: pass the id of one person, and do not "
            "record for a person without an id"
        )
    return subject_id
