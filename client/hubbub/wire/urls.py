"""Check the URL of an aggregator, and mask secrets in URLs before a URL is printed: in errors, logs, findings and tracebacks.

`mask_url` is for a text that is one URL or the name of a database. `mask_urls` is for a message that may repeat URLs.
Both hide passwords, parameters and fragments, and show the scheme, the host and the path. They hide all but the scheme where a URL
can be read in two ways, because a password may contain every character that separates the parts of a URL.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from hubbub.errors import ParameterError

# Patterns are texts, which `re` compiles at their first use: compiling them here would take 1 ms of `import hubbub`.
_MASK = "***"
_HOST = r"(?:\[[\w:.%]*\]|[\w.-]*)(?::\d+)?"
_HOSTS = rf"(?:\*\*\*|{_HOST}(?:,{_HOST})*)(?=[/?#]|\Z)"
_SCHEME = r"(?:[a-z][a-z0-9+.-]+:/{1,2}|postgres(?:ql)?:)"  # one slash: pathlib removes the other
_URL = rf"(?is)(\W*{_SCHEME})(.*)"
_BEFORE_URL = r"""(?i)(?<![^\s"'`(\[{<=,])"""
_URL_IN_TEXT = _BEFORE_URL + _SCHEME
_NEXT_URL_IN_TEXT = rf"{_BEFORE_URL}(?:https?|s3|gs|az|file|sqlite|postgres(?:ql)?):/"
"""After the first URL only a known scheme begins another one, because a password may contain `[word:/`."""
_SHOWS_USER = r"(?i)\W*(?:postgres(?:ql)?\S*)?"
"""In a URL of another scheme, the name before the @ is often a token."""
_SHOWN_PARAMETERS = ("host", "hostaddr", "port")
_PUNCTUATION = ":;.,)}>\"'`"
_ASSIGNMENT = r"(?i)((?<!\w)(?=\w*(?:password|secret))\w++\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&]+)"


def mask_url(url: str) -> str:
    """Return a URL, or a database's name, without its secrets.

    >>> mask_url("postgresql://u:sec/r@t@host/y?sslpassword=too"), mask_url("https://token@host:8000/path?key=1#part")
    ('postgresql://u:***@host/y?***', 'https://***@host:8000/path?***#***')

    Nothing but the scheme is shown if the text after it does not begin with a host and a port, or if an @ follows a ? or a #.

    >>> mask_url("postgresql://u:sec/ret"), mask_url("http://host?a=b@c"), mask_url("postgresql://[::1]:5432/y")
    ('postgresql://***', 'http://***', 'postgresql://[::1]:5432/y')
    """
    found = re.fullmatch(_URL, url)
    if found is not None:
        return _mask_after(found[1], found[2])
    if re.match(r"[^:]*:.*@", url, re.DOTALL):
        return _mask_after("", url)
    start, separator, _ = url.partition("://")
    return f"{start}://{_MASK}" if separator else _mask_passwords(url)


def mask_urls(text: str) -> str:
    """Return a message without the secrets of the URLs that it repeats.

    >>> mask_urls('cannot PUT (http://key:secret@host/bucket/a?token=b) in 3 s; see "https://example.org/help".')
    'cannot PUT (http://***@host/bucket/a?*** in 3 s; see "https://example.org/help".'

    Where a URL ends is not known, because a password may contain blanks. So a URL reaches at least to the last @ before the next URL.

    >>> mask_urls("postgresql://u:a b@host/y -> s3://bucket/c: no space")
    'postgresql://u:***@host/y -> s3://bucket/c: no space'
    """
    shown, rest = [], text
    while found := re.search(_URL_IN_TEXT, rest):
        following = re.compile(_NEXT_URL_IN_TEXT).search(rest, found.start() + 1)
        end = len(rest) if following is None else following.start()
        masked, length = _mask_first(rest[found.start() : end])
        shown += [_mask_passwords(rest[: found.start()]), masked]
        rest = rest[found.start() + length :]
    return "".join([*shown, _mask_passwords(rest)])


def _mask_after(scheme: str, rest: str) -> str:
    """Mask the part of a URL after its scheme; `rest` has the form user:password@host:port/path?query#fragment."""
    userinfo, at, after = rest.rpartition("@")
    hosts = re.match(_HOSTS, after)
    if hosts is None or "?" in userinfo or "#" in userinfo:
        return scheme + _MASK
    name, colon, _ = userinfo.partition(":")
    if at and re.fullmatch(_SHOWS_USER, scheme) and re.fullmatch(r"[\w.-]*", name):
        user = f"{name}:{_MASK}@" if colon else f"{name}@"
    else:
        user = f"{_MASK}@" if at else ""
    address, hash_, _ = after.partition("#")
    path, question, query = address.partition("?")
    shown = scheme + user + _mask_passwords(path)
    if question:
        shown += "?" + "&".join(map(_mask_parameter, query.split("&")))
    return f"{shown}#{_MASK}" if hash_ else shown


def _mask_parameter(text: str) -> str:
    name, _, value = text.partition("=")
    is_shown = name in _SHOWN_PARAMETERS and re.fullmatch(r"[\w./:,\[\]-]*", value)
    return text if is_shown else _MASK  # the name as well: after a & that is not encoded it may be a part of a secret


def _mask_first(text: str) -> tuple[str, int]:
    """Mask the URL with which a text begins; return it and the number of characters that it had."""
    end = _end_of_word(text, 0)
    is_masked = _MASK in text[:end] and mask_url(text[:end]) == text[:end]
    signs = [found.end() for found in re.finditer(r"@(?=\S)", text)]
    if signs and not is_masked:
        end = _end_of_word(text, signs[-1])
    url = text[:end]
    if "?" not in url and "#" not in url:  # else a character at its end may belong to a secret
        url = _without_punctuation(url)
    masked = mask_url(url)
    is_whole = masked == url or not masked.endswith(f"/{_MASK}")
    return masked, len(url) if is_whole else len(text)


def _without_punctuation(url: str) -> str:
    """Return a URL without the punctuation of the message after it, of which a bracket closes none of the URL's own."""
    unpaired, end = url.count("]") - url.count("["), len(url)
    while end and (url[end - 1] in _PUNCTUATION or (url[end - 1] == "]" and unpaired > 0)):
        end -= 1
        unpaired -= url[end] == "]"
    return url[:end]


def _mask_passwords(text: str) -> str:
    """Mask the values of `password = value` in a text without URLs, such as a connection string of libpq."""
    return re.sub(_ASSIGNMENT, rf"\1{_MASK}", text)


def _end_of_word(text: str, start: int) -> int:
    found = re.compile(r"\s").search(text, start)
    return len(text) if found is None else found.start()


def check_url(url: str) -> str:
    """Return the URL of an aggregator without trailing slashes.

    Raises ParameterError unless the URL is https, or http to a loopback address.

    >>> check_url("https://telemetry.example.org/"), check_url("http://127.0.0.1:8000")
    ('https://telemetry.example.org', 'http://127.0.0.1:8000')
    >>> check_url("http://telemetry.example.org")
    Traceback (most recent call last):
    hubbub.errors.ParameterError: url must be https, got 'http://telemetry.example.org': http is allowed for loopback addresses only
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() and " " not in url else urlsplit("")
        is_valid = parts.hostname and parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:  # unbalanced brackets, or an invalid port
        is_valid = False
    if is_valid and "@" in url:
        raise ParameterError(
            f"url must have no user name and password, got {mask_url(url)}: delete the part before the @"
        )
    if not is_valid or "?" in url or "#" in url:
        raise ParameterError(
            f"url must be an address such as https://telemetry.example.org, without query and fragment, got {mask_url(str(url))!r}"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ParameterError(f"url must be https, got {url!r}: http is allowed for loopback addresses only")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address, which only this machine can reach.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
