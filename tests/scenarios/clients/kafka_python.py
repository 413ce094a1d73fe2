"""Reads one partition from its beginning and prints each record as a line of JSON: offset,
milliseconds, key and value in base64 (null where there is none).

Run as a program, with another kafka-python than the one that is installed, or with more codecs; it
imports nothing of ours.
"""

import base64
import json
import sys

from kafka import KafkaConsumer, TopicPartition

_IDLE_MS = 30_000


def main(servers: str, topic: str, count: int) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","),
        auto_offset_reset="none",
        enable_auto_commit=False,
        consumer_timeout_ms=_IDLE_MS,
    )
    topic_partition = TopicPartition(topic, 0)
    consumer.assign([topic_partition])
    consumer.seek(topic_partition, 0)
    for number, record in enumerate(consumer, 1):
        row = [record.offset, record.timestamp, _text(record.key), _text(record.value)]
        sys.stdout.write(json.dumps(row) + "\n")
        if number == count:
            break
    consumer.close()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
