"""A Kafka client inside a pod: `python -m tests.deploy.pod_client produce|digest|start ...`."""

import hashlib
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

_LIMIT_S = 240
SIZE_BYTES = 1024


def value_of(number: int) -> bytes:
    """The value of a record; no two are the same."""
    return (b"%d " % number).ljust(SIZE_BYTES, b"x")


def digest_of(count: int) -> str:
    """Of the values of so many records in their order."""
    digest = hashlib.sha256()
    for number in range(count):
        digest.update(value_of(number))
    return digest.hexdigest()


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Make the topic, with segments of a mebibyte, and fill its partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = NewTopic(topic, 1, 1, config={"segment.bytes": str(1 << 20)})
    admin.create_topics([made])[topic].result(_LIMIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "batch.size": 32_768})
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value_of(number), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_LIMIT_S) == 0


def digest(bootstrap: str, topic: str, count: int) -> None:
    """Print the digest of the first values, from offset 0 on and without a gap."""
    options = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "error"}
    consumer = Consumer({**options, "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, read, deadline = hashlib.sha256(), 0, time.monotonic() + _LIMIT_S
    while read < count:
        assert time.monotonic() < deadline, f"only {read} records"
        for message in consumer.consume(500, timeout=1):
            assert message.error() is None, message.error()
            assert message.offset() == read
            found.update(message.value() or b"")
            read += 1
    consumer.close()
    print(found.hexdigest())


def start(bootstrap: str, topic: str) -> None:
    """Print the first offset that this address has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0)
    found = admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(_LIMIT_S)
    print(found.offset)


if __name__ == "__main__":
    verb, address, name, *number = sys.argv[1:]
    if verb == "start":
        start(address, name)
    else:
        {"produce": produce, "digest": digest}[verb](address, name, int(number[0]))
