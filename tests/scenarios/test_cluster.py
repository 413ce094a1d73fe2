"""The verbs' own account of the clients they open, without any broker."""

from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.scenarios.client_threads import clients_come_to, open_clients

NOWHERE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}


def test_a_client_counts_until_it_is_closed_or_dropped() -> None:
    before = open_clients()
    with AdminClient(NOWHERE):
        assert open_clients() > before
    assert clients_come_to(before)
    consumer = Consumer({**NOWHERE, "group.id": "x"})
    producer = Producer(NOWHERE)
    assert open_clients() >= before + 2
    consumer.close()
    del producer
    assert clients_come_to(before)
