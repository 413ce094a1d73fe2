"""Kafka's partitioner, against the vectors of Kafka's own UtilsTest and one of the whole chain."""

import pytest

from kip405.ids import PartitionKey, Uuid
from rlmm.records import ledger_partition, murmur2, partition_hash

TOPIC = Uuid.parse("jF8s79t9SrG_PNqlwv7bAA")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_equals_kafkas_utils_test(text: str, expected: int) -> None:
    assert murmur2(text.encode()) == expected % 2**32


@pytest.mark.parametrize(
    ("partition", "hashed", "of_50", "of_5"), [(0, -1569520090, 30, 0), (1, -1569520089, 24, 4)]
)
def test_the_metadata_partition_of_a_known_topic(
    partition: int, hashed: int, of_50: int, of_5: int
) -> None:
    key = PartitionKey(TOPIC, partition)
    assert partition_hash(key) == hashed % 2**32
    assert ledger_partition(key) == of_50
    assert ledger_partition(key, 5) == of_5
