"""Replaces host and port of nodes in answers that clients follow: all of Kafka's that name brokers.

These are Metadata, DescribeCluster, FindCoordinator, and the node endpoints of Produce (v10 on) and
Fetch (v16 on, KIP-951). Node ids, the cluster id and everything else stay as they are, byte for
byte. What else has a host in Kafka's protocol is followed by nobody: addresses of controllers
(DescribeQuorum, and the requests among voters), of clients (groups, ACLs, Streams), and those of
ShareFetch and ShareAcknowledge, which are not offered (`api_versions`). A test lists them all. This
module must not know where addresses come from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_protocol.apis import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA
from kafka_protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE
from kafka_protocol.frames import has_flexible_response_header
from kafka_protocol.primitives import Buffer, Reader, WireError, Writer, encode_uvarint
from kafka_protocol.schema import Api

FIRST_PRODUCE_WITH_ENDPOINTS = 10
FIRST_FETCH_WITH_ENDPOINTS = 16
_NODE_ENDPOINTS_TAG = 0  # of Produce and Fetch
_UNKNOWN_TAG = 0x7F  # of none of them; one byte, as the other
_BROKERS = 1  # DescribeCluster's endpoint type; ids of controllers may be those of other nodes
_NO_NODE = -1
_FIRST_METADATA_WITH_THROTTLE = 3
_FIRST_METADATA_WITH_RACK = 1
_FIRST_CLUSTER_WITH_TYPE = 1
_FIRST_CLUSTER_WITH_FENCED = 2
_FIRST_COORDINATOR_WITH_THROTTLE = 1
_FIRST_COORDINATOR_WITH_MANY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddress:
    """Where clients shall reach a node."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddresses:
    """`replaced`: addresses by node id. Other nodes keep their own where `keeps_others`; else they
    are left out, as a broker leaves out those without a listener of that name: to a client such a
    node is not available, and it asks again.
    """

    replaced: Mapping[int, NodeAddress]
    keeps_others: bool

    def leaves_out(self, node_id: int) -> bool:
        """Whether the node must not be named."""
        return node_id >= 0 and not self.keeps_others and node_id not in self.replaced


AddressLookup = Callable[[], NodeAddresses | None]
"""What is replaced now; None = nothing, where the broker itself advertises the proxy."""


def keep_addresses() -> None:
    """An AddressLookup: nothing is replaced."""


def rewrite_metadata(frame: Buffer, version: int, nodes: NodeAddresses) -> list[Buffer]:
    """The pieces of a Metadata answer (no length before it). Only its brokers, which come first,
    are read. Raises `WireError`, as all functions here.
    """
    reader = _reader(frame, METADATA, version)
    if version >= _FIRST_METADATA_WITH_THROTTLE:
        reader.int32()
    edits = _Edits(frame, nodes, flexible=METADATA.is_flexible(version))
    edits.scan_nodes(reader, _skip_rack if version >= _FIRST_METADATA_WITH_RACK else _skip_nothing)
    return edits.pieces()


def rewrite_describe_cluster(frame: Buffer, version: int, nodes: NodeAddresses) -> list[Buffer]:
    """The pieces of a DescribeCluster answer; one that lists controllers is left alone."""
    reader = _reader(frame, DESCRIBE_CLUSTER, version)
    reader.view(4 + 2)  # throttle_time_ms, error_code
    reader.skip_string(flexible=True)
    if version >= _FIRST_CLUSTER_WITH_TYPE and reader.int8() != _BROKERS:
        return [frame]
    reader.skip_string(flexible=True)  # cluster_id
    reader.int32()  # controller_id
    edits = _Edits(frame, nodes, flexible=True)
    has_fenced = version >= _FIRST_CLUSTER_WITH_FENCED
    edits.scan_nodes(reader, _skip_rack_and_fenced if has_fenced else _skip_rack)
    return edits.pieces()


def rewrite_find_coordinator(frame: Buffer, version: int, nodes: NodeAddresses) -> list[Buffer]:
    """The pieces of a FindCoordinator answer, of one coordinator or of many. A coordinator that is
    left out is COORDINATOR_NOT_AVAILABLE, upon which every client asks again.
    """
    reader = _reader(frame, FIND_COORDINATOR, version)
    edits = _Edits(frame, nodes, flexible=FIND_COORDINATOR.is_flexible(version))
    if version >= _FIRST_COORDINATOR_WITH_THROTTLE:
        reader.int32()
    if version >= _FIRST_COORDINATOR_WITH_MANY:
        edits.scan_coordinators(reader)
    else:
        edits.scan_coordinator(reader, has_message=version >= _FIRST_COORDINATOR_WITH_THROTTLE)
    return edits.pieces()


def rewrite_node_endpoints(frame: bytearray, tags_position: int, nodes: NodeAddresses) -> bytearray:
    """A Produce or Fetch answer, whose last tagged fields begin there: a copy if these have node
    endpoints. The leader's id in a partition's answer stays: a client that is not given that node's
    endpoint uses the address that it knows, or asks for metadata.
    """
    reader = Reader(frame, tags_position, what="node endpoints")
    tags = bytearray()
    count, has_changed = reader.uvarint(), False
    for _ in range(count):
        tag = reader.uvarint()
        payload: Buffer = reader.view(reader.uvarint())
        if tag == _NODE_ENDPOINTS_TAG:
            endpoints = _Edits(payload, nodes, flexible=True)
            inner = Reader(payload, what="node endpoints")
            endpoints.scan_nodes(inner, _skip_rack)
            if inner.remaining():
                raise inner.fail(f"{inner.remaining()} bytes left")
            payload, has_changed = b"".join(endpoints.pieces()), True
        tags += encode_uvarint(tag) + encode_uvarint(len(payload)) + payload
    if reader.remaining():
        raise reader.fail(f"{reader.remaining()} bytes left")
    if not has_changed:
        return frame
    return frame[:tags_position] + encode_uvarint(count) + tags


def hide_node_endpoints(tags: memoryview) -> None:
    """In these tagged fields, the last ones of a Fetch answer whose length was sent already, make
    the node endpoints a field that no client knows: all skip it, and ask for metadata instead.
    """
    reader = Reader(tags, what="node endpoints")
    for _ in range(reader.uvarint()):
        at = reader.position
        if reader.uvarint() == _NODE_ENDPOINTS_TAG:
            if reader.position != at + 1:
                raise reader.fail("a tag of 0 in more than one byte")
            tags[at] = _UNKNOWN_TAG
        reader.view(reader.uvarint())


Rewrite = Callable[[Buffer, int, NodeAddresses], list[Buffer]]


@dataclass(slots=True)
class _Edits:
    """What is replaced in a frame: from, to, and by what; found by a reader that goes over it."""

    frame: Buffer
    nodes: NodeAddresses
    flexible: bool = field(kw_only=True)
    found: list[tuple[int, int, bytes]] = field(default_factory=list)

    def scan_nodes(self, reader: Reader, skip_rest: Callable[[Reader, bool], None]) -> None:
        """An array of nodes: id, host, port, and what `skip_rest` reads."""
        start = reader.position
        count = reader.count(flexible=self.flexible)
        end, left_out = reader.position, 0
        for _ in range(count):
            node_at = reader.position
            node_id = reader.int32()
            host_at = reader.position
            self._skip_address(reader)
            port_end = reader.position
            skip_rest(reader, self.flexible)
            if self.flexible:
                reader.skip_tags()
            if self.nodes.leaves_out(node_id):
                left_out += 1
                self.found.append((node_at, reader.position, b""))
            else:
                self._replace_address(node_id, host_at, port_end)
        if left_out:
            self.found.append((start, end, self._count(count - left_out)))

    def scan_coordinators(self, reader: Reader) -> None:
        """An array of coordinators by their keys."""
        for _ in range(reader.count(flexible=True)):
            reader.skip_string(flexible=True)  # key
            node_at = reader.position
            node_id = reader.int32()
            self._skip_address(reader)
            error_at = reader.position
            error_code = reader.int16()
            reader.skip_string(flexible=True)  # error_message
            reader.skip_tags()
            self._replace_coordinator(node_id, (node_at, error_at), error_at, error_code)

    def scan_coordinator(self, reader: Reader, *, has_message: bool) -> None:
        """The only coordinator of an answer."""
        error_at = reader.position
        error_code = reader.int16()
        if has_message:
            reader.skip_string(flexible=self.flexible)
        node_at = reader.position
        node_id = reader.int32()
        self._skip_address(reader)
        self._replace_coordinator(node_id, (node_at, reader.position), error_at, error_code)

    def _replace_coordinator(
        self, node_id: int, node: tuple[int, int], error_at: int, error_code: int
    ) -> None:
        if error_code != NONE:
            return
        if not self.nodes.leaves_out(node_id):
            self._replace_address(node_id, node[0] + 4, node[1])
            return
        nobody = self._encoded(NodeAddress(host="", port=_NO_NODE))
        self.found.append((*node, _NO_NODE.to_bytes(4, "big", signed=True) + nobody))
        self.found.append((error_at, error_at + 2, COORDINATOR_NOT_AVAILABLE.to_bytes(2, "big")))

    def _replace_address(self, node_id: int, start: int, end: int) -> None:
        address = self.nodes.replaced.get(node_id)
        if address is not None:
            self.found.append((start, end, self._encoded(address)))

    def _skip_address(self, reader: Reader) -> None:
        reader.skip_string(flexible=self.flexible)
        reader.int32()

    def _encoded(self, address: NodeAddress) -> bytes:
        writer = Writer(what=f"address {address.host}:{address.port}")
        if self.flexible:
            writer.compact_nullable_string(address.host)
        else:
            writer.nullable_string(address.host)
        writer.int32(address.port)
        return bytes(writer.buffer)

    def _count(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self.flexible else count.to_bytes(4, "big")

    def pieces(self) -> list[Buffer]:
        """The frame with all of it replaced: what was changed in one piece, and the long rest."""
        if not self.found:
            return [self.frame]
        view = memoryview(self.frame)
        changed = bytearray()
        position = 0
        for start, end, replacement in sorted(self.found):
            changed += view[position:start]
            changed += replacement
            position = end
        return [changed, view[position:]] if position < len(view) else [changed]


def _reader(frame: Buffer, api: Api, version: int) -> Reader:
    """Behind the header of a response."""
    reader = Reader(frame, what=f"{api.name} v{version} response")
    if not api.versions.has(version):
        raise WireError(f"{reader.what}: only {api.versions} are handled")
    reader.int32()  # correlation id
    if has_flexible_response_header(api, version):
        reader.skip_tags()
    return reader


def _skip_nothing(_: Reader, __: bool) -> None:
    """Metadata v0 has no rack."""


def _skip_rack(reader: Reader, flexible: bool) -> None:
    reader.skip_string(flexible=flexible)


def _skip_rack_and_fenced(reader: Reader, flexible: bool) -> None:
    reader.skip_string(flexible=flexible)
    reader.boolean()
