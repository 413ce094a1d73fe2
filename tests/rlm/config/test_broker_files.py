"""Listeners as server.properties names them: Kafka takes more shapes than our own settings."""

import pytest

from kip405.addresses import Address
from kip405.errors import Invalid
from rlm.config.broker_files import advertised_address, broker_identity


def test_listeners_are_where_this_machine_reaches_them() -> None:
    listed = "A://::1:1,B://[::1]:2,C://:3,D://[::]:4,E://0.0.0.0:5,F://broker-1:6"
    found = broker_identity({"listeners": listed}).listeners
    assert {name: str(address) for name, address in found.items()} == {
        "A": "[::1]:1",
        "B": "[::1]:2",
        "C": "127.0.0.1:3",
        "D": "127.0.0.1:4",
        "E": "127.0.0.1:5",
        "F": "broker-1:6",
    }


@pytest.mark.parametrize("address", ["", "h", "h:x", "h:0", "h:65536", ":x"])
def test_a_listener_without_an_address_is_refused(address: str) -> None:
    with pytest.raises(Invalid):
        broker_identity({"listeners": f"A://{address}"})


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        ("A://h:1,B://[::1]:2", Address(host="::1", port=2)),
        ("b://::1:2", Address(host="::1", port=2)),
        ("A://h:1", None),
        ("B://:2", None),
        ("B://h:x", None),
    ],
)
def test_where_clients_are_sent(advertised: str, expected: Address | None) -> None:
    assert advertised_address("b", advertised) == expected
