"""Assigns user partitions to ledger partitions, as Kafka's RemoteLogMetadataTopicPartitioner does.

The result is equal bit for bit. Pure. This module must not know the number of brokers or the
leaders.
"""

from kip405.ids import PartitionKey

LEDGER_PARTITIONS = 50


_MASK_32 = 0xFFFFFFFF


_M = 0x5BD1E995


_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned (org.apache.kafka.common.utils.Utils.murmur2)."""
    hashed = (_SEED ^ len(data)) & _MASK_32
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = (word * _M) & _MASK_32
        word ^= word >> 24
        word = (word * _M) & _MASK_32
        hashed = (hashed * _M) & _MASK_32
        hashed ^= word
    if len(data) != whole:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = (hashed * _M) & _MASK_32
    hashed ^= hashed >> 13
    hashed = (hashed * _M) & _MASK_32
    return hashed ^ (hashed >> 15)


def partition_hash(key: PartitionKey) -> int:
    """Objects.hash(least significant long, most significant long, partition), unsigned 32 bits."""
    hashed = 1
    for half in (key.topic_id.raw[8:], key.topic_id.raw[:8]):
        hashed = (31 * hashed + _long_hash(half)) & _MASK_32
    return (31 * hashed + key.partition) & _MASK_32


def ledger_partition(key: PartitionKey, partition_count: int = LEDGER_PARTITIONS) -> int:
    """The ledger partition of a user partition."""
    return (murmur2(partition_hash(key).to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def _long_hash(half: bytes) -> int:
    """Java's Long.hashCode of 8 big-endian bytes, unsigned."""
    return int.from_bytes(half[:4], "big") ^ int.from_bytes(half[4:], "big")
