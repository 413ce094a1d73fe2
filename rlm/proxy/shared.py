"""What the connections of a proxy share: settings, limits, and memory that bytes pass through."""

from collections.abc import Callable
from dataclasses import dataclass

from kafka_protocol.frames import frame_length
from kafka_protocol.node_addresses import AddressLookup
from kafka_protocol.primitives import Buffer
from kafka_protocol.produce import LogStartLookup
from rlm.proxy.memory import ConnectionMemory
from rlm.proxy.own_topics import OwnTopics
from rlm.proxy.responses import Assembled, altered
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.proxy.splicing import Pipes
from rlm.proxy.tls_files import TlsContexts

READ_BUFFER_BYTES = 65_536
"""A connection holds no more than this of what it only passes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all connections of a server share.

    There is one `read_buffer`: a callback uses its bytes before the next callback runs. `moved`
    gets the number of bytes that arrived.
    """

    settings: ProxySettings
    metrics: ProxyMetrics
    memory: ConnectionMemory
    produce_log_start: LogStartLookup
    node_addresses: AddressLookup
    own_topics: OwnTopics
    read_buffer: memoryview
    pipes: Pipes
    moved: Callable[[int], None]
    tls: TlsContexts

    def altered(self, whole: Assembled) -> list[Buffer]:
        """What a client gets of an answer that is not of a handler, with its length. Raises
        `WireError`.
        """
        pieces = altered(whole, self.produce_log_start, self.node_addresses(), self.own_topics)
        return [frame_length(sum(map(len, pieces))), *pieces]
