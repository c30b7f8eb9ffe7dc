"""Client address of a request, for arbitrary X-Forwarded-For headers."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from hubbub_aggregator.server.client_address import LOCAL, Proxies

ENTRIES = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(v=4).map(lambda address: f"{address}:4711"),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]:4711"),
    st.sampled_from(["127.0.0.1", "::1", "10.1.2.3", "unknown", "local", "", " ", "["]),
    st.text(st.characters(exclude_characters=","), max_size=8),
)


@given(st.sampled_from(["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3"]), st.none() | st.lists(ENTRIES, max_size=4))
def test_client_address_is_an_address_or_local(host: str, entries: list[str] | None) -> None:
    peer = Proxies(["10.0.0.0/8"]).client_address(host, None if entries is None else ",".join(entries))
    assert peer == LOCAL or not ipaddress.ip_address(peer).is_loopback


@given(st.lists(ENTRIES, max_size=4))
def test_client_address_uses_the_entry_of_the_nearest_proxy(entries: list[str]) -> None:
    assert Proxies().client_address("127.0.0.1", ",".join([*entries, "192.0.2.1"])) == "192.0.2.1"
    assert Proxies().client_address("192.0.2.9", ",".join(entries)) == "192.0.2.9"


def test_requests_without_client_are_one_network() -> None:
    proxies = Proxies(["10.0.0.0/8"])
    assert [proxies.client_address(host, None) for host in ("127.0.0.1", "::1", "10.1.2.3")] == [LOCAL] * 3
    assert proxies.client_address("127.0.0.1", "10.1.2.3, 127.0.0.1") == LOCAL
    assert proxies.client_address("127.0.0.1", "192.0.2.1, local") == LOCAL, (
        "entries left of the nearest proxy's entry are written by the client"
    )
