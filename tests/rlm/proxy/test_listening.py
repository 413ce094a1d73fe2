"""The sockets that clients connect to, at every address of their name."""

import errno
import socket

import pytest

from kip405.errors import Invalid
from rlm.proxy.listening import listen


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let the name `broker` stand for these addresses, whatever the machine's resolver knows."""
    known = socket.getaddrinfo

    def found(host: str, *more: object, **named: object) -> list[object]:
        hosts = addresses if host == "broker" else (host,)
        return [row for one in hosts for row in known(one, *more, **named)]  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def assert_answers(address: str, port: int) -> None:
    socket.create_connection((address, port), 2).close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as (one,):
        port = one.getsockname()[1]
        with pytest.raises(Invalid, match=f"127.0.0.1:{port}"), listen("127.0.0.1", port):
            pass


def test_all_addresses_of_a_name_are_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "127.0.0.1", "127.0.0.2")
    with listen("broker", 0) as (one, other):
        port = one.getsockname()[1]
        assert other.getsockname() == ("127.0.0.2", port)
        for address in ("127.0.0.1", "127.0.0.2"):
            assert_answers(address, port)


@pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6")
def test_both_families_are_listened_on_at_one_port() -> None:
    with listen("::", 0) as (one,):
        port = one.getsockname()[1]
        with listen("0.0.0.0", port):
            assert_answers("::1", port)
            assert_answers("127.0.0.1", port)


def test_an_address_of_another_machine_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "203.0.113.1", "127.0.0.1")  # RFC 5737: nobody has the first one
    with listen("broker", 0) as (one,):
        assert_answers("127.0.0.1", one.getsockname()[1])


def test_only_addresses_of_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "198.51.100.1", "203.0.113.1")
    with pytest.raises(Invalid, match="broker:0") as raised, listen("broker", 0):
        pass
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.EADDRNOTAVAIL
