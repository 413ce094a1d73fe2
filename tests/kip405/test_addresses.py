"""Addresses: what each shape is read as, its borders, and what is refused."""

import socket
import tempfile
from pathlib import Path

import pytest

from kip405.addresses import MAX_UNIX_PATH_BYTES, Address
from kip405.errors import Invalid


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("h:1", "h", 1),
        ("a.b-c_d.e:65535", "a.b-c_d.e", 65_535),
        ("127.0.0.1:9092", "127.0.0.1", 9_092),
        ("[::1]:9092", "::1", 9_092),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1),
    ],
)
def test_a_host_and_a_port(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == Address(host=host, port=port) == Address.parse_listening(text)
    assert str(address) == text


@pytest.mark.parametrize("text", ["unix:/a", "unix:///a"])
def test_a_unix_socket_by_its_path_or_its_uri(text: str) -> None:
    address = Address.parse(text)
    assert address == Address(unix_path="/a") == Address.parse_listening(text)
    assert address.is_unix
    assert str(address) == "unix:/a"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "neither"),
        ("localhost", "neither"),
        (":9", "neither"),
        ("host:", "neither"),
        ("host:x", "neither"),
        ("host:-1", "neither"),
        ("host:\u0661", "neither"),
        ("h\u00f6st:1", "neither"),
        ("http://localhost:1", "neither"),
        ("a:b:1", "neither"),
        ("::1:9092", "neither"),
        ("[::1:9092", "neither"),
        ("[]:1", "neither"),
        ("[::g]:1", "neither"),
        ("[127.0.0.1]:1", "neither"),
        ("[localhost]:1", "neither"),
        ("h:1 ", "neither"),
        ("h:1\n", "neither"),
        ("h:65536", "above 65535"),
        ("127.0.0.1:70000", "above 65535"),
        ("unix:", "must be absolute"),
        ("unix:relative", "must be absolute"),
        ("unix://host/path", "must be absolute"),
    ],
)
def test_texts_that_are_no_addresses(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        Address.parse(text)
    with pytest.raises(Invalid, match=why):
        Address.parse_listening(text)


def test_port_0_is_for_listening_only() -> None:
    assert Address.parse_listening("127.0.0.1:0").with_port(7) == Address.parse("127.0.0.1:7")
    assert Address.parse_listening("unix:/a").with_port(0) == Address(unix_path="/a")
    with pytest.raises(Invalid, match="not within 1 to 65535"):
        Address.parse("127.0.0.1:0")


@pytest.mark.parametrize("letter", ["x", "\u00e4"])
def test_the_longest_path_of_a_unix_socket(letter: str) -> None:
    """The bound counts bytes, and the system takes a path of that length."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        left = MAX_UNIX_PATH_BYTES - len(f"{folder}/")
        size = len(letter.encode())
        path = f"{folder}/" + "x" * (left % size) + letter * (left // size)
        assert Address.parse(f"unix:{path}").unix_path == path
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            assert Path(path).is_socket()
        with pytest.raises(Invalid, match=f"has {MAX_UNIX_PATH_BYTES + 1} bytes"):
            Address.parse(f"unix:{path}x")


@pytest.mark.parametrize(
    "text", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1", "unix:/a"]
)
def test_addresses_that_only_this_machine_reaches(text: str) -> None:
    address = Address.parse(text)
    assert address.is_private
    address.require_private(allowed=False)


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example:1"])
def test_addresses_that_others_reach(text: str) -> None:
    address = Address.parse(text)
    assert not address.is_private
    address.require_private(allowed=True)
    with pytest.raises(Invalid, match="allow_insecure"):
        address.require_private(allowed=False)


@pytest.mark.parametrize(
    ("text", "is_wildcard"),
    [("0.0.0.0:1", True), ("[::]:1", True), ("127.0.0.1:1", False), ("h:1", False)],
)
def test_addresses_that_are_good_to_listen_on_alone(text: str, is_wildcard: bool) -> None:
    assert Address.parse(text).is_wildcard == is_wildcard
