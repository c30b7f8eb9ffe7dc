"""Random URLs with secrets, for Hypothesis: valid ones, and ones that a person mistyped."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from hypothesis import strategies as st

PIECES = ("s3cret", "tw0kens")
"""Every secret contains one of these, and no other part of a URL does."""
_RESERVED = " :/?#[]@!$&'()*+,;=%\"\\<>^`{|}~-._\t\n"
_PARAMETERS = ("password", "sslpassword", "token", "application_name", "X-Amz-Signature", "pass%77ord")
_USERS = ("u", "us-er.1", "", "Bj%C3%B6rk", "u%40mail")
_PATHS = ("", "/", "/y", "/var/lib/a-b_c.d")


@dataclass(frozen=True)
class SecretURL:
    """A URL with secrets. scheme, host, path: the parts that a masked URL shows"""

    text: str
    scheme: str
    host: str
    path: str


@st.composite
def secrets(draw: st.DrawFn) -> str:
    """Draw a secret: a piece between characters that separate the parts of a URL."""
    around = st.lists(st.sampled_from([*_RESERVED, *PIECES, "%40", "%2F", "1", "é"]), max_size=4).map("".join)
    return draw(around) + draw(st.sampled_from(PIECES)) + draw(around)


@st.composite
def valid_urls(draw: st.DrawFn, schemes: tuple[str, ...], hosts: tuple[str, ...]) -> SecretURL:
    """Draw a URL whose secrets are percent-encoded: in its password, its parameters or its fragment."""
    encoded = secrets().map(lambda secret: quote(secret, safe=""))
    scheme, host, path = (draw(st.sampled_from(values)) for values in (schemes, hosts, _PATHS))
    user, password = draw(st.sampled_from(_USERS)), draw(encoded)
    parameters = draw(st.lists(st.tuples(st.sampled_from(_PARAMETERS), encoded), max_size=2))
    query = "".join(f"{mark}{name}={value}" for mark, (name, value) in zip("?&", parameters, strict=False))
    fragment = draw(st.just("") | encoded.map("#{}".format))
    return SecretURL(f"{scheme}://{user}:{password}@{host}{path}{query}{fragment}", scheme, host, path)


@st.composite
def broken_urls(draw: st.DrawFn, schemes: tuple[str, ...], hosts: tuple[str, ...]) -> str:
    """Draw a URL with one or more mistakes: a password that is not encoded, blanks, a missing part, a bracket too many.

    A password without a host is not one that looks like a host, like a port, or like a path: nobody can tell them apart.
    """
    url = draw(valid_urls(schemes, hosts))
    raw = draw(secrets())
    begin = f"{url.scheme}://u:"
    match draw(st.integers(0, 10)):
        case 0:
            text = f"{begin}{raw}@{url.host}{url.path}"
        case 1:
            text = begin + raw.replace("@", "").lstrip("0123456789/")
        case 2:
            text = f"{begin}{raw}@[{url.host}{url.path}"
        case 3:
            text = f"{begin}{raw}@{url.host}:port{url.path}"
        case 4:
            text = f"u:{raw}@{url.host}{url.path}"
        case 5:
            text = url.text.replace("://", draw(st.sampled_from((":", ":/", ":///", "//", ";//", "+x://"))), 1)
        case 6:
            text = f"{url.scheme}://{url.text}"
        case 7:
            text = f"{url.scheme}://u@{url.host}{url.path}?token={raw}"
        case 8:
            text = url.text.replace("://", "://\t", 1)
        case 9:
            text = f"//{url.text.partition('://')[2]}"
        case _:
            text = url.text.upper().replace(PIECES[0].upper(), PIECES[0]).replace(PIECES[1].upper(), PIECES[1])
    before, after = st.sampled_from(("", " ", "\t", "\n", "'", '"', "\ufeff")), st.sampled_from(("", " ", "\n", "'"))
    return draw(before) + text + draw(after)


def revealed(text: str) -> list[str]:
    """Return the pieces of secrets that a text contains."""
    return [piece for piece in PIECES if piece in text]
