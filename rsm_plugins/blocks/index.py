"""The index object of a segment as a value: what is in its metadata, and what readers keep of it.

The mappings are PIP-17's. The metadata is protobuf (proto/rsm_plugins/v1/blocks.proto): which
segment this is, what each block holds of the raw log, the sparse table, and the whole indexes
object. So a data object and its index are enough to serve a segment. Pure: bytes in, value out.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid
from kip405.segments import LogSegmentData, SegmentLocator
from rsm_plugins.blocks.format import (
    ENTRY_HEADER_BYTES,
    FORMAT_VERSION,
    Block,
    Mapping,
    RawIndex,
    decode_index,
    encode_index,
)
from rsm_plugins.blocks.plan import BlocksPlan, PositionPoints
from rsm_plugins.v1.blocks_pb2 import BlocksMetadata, LogBlock

_CLOSED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksIndex:
    """What a reader needs of an index object; `indexes` is the indexes object in it."""

    blocks: tuple[Block, ...]
    points: PositionPoints
    data_size_bytes: int
    log_size_bytes: int
    log_crc32c: int
    segment_id: bytes
    indexes: bytes = field(repr=False)

    @property
    def kept_bytes(self) -> int:
        """About how much memory this takes without `indexes`."""
        return 400 + 200 * len(self.blocks) + 16 * len(self.points)


def build_index(plan: BlocksPlan, locator: SegmentLocator, data: LogSegmentData) -> bytes:
    """The index object for a plan; Invalid where the indexes are too large for it."""
    partition = locator.segment_id.topic_id_partition
    metadata = BlocksMetadata(
        quorum_size=1,
        ensemble_size=1,
        length=plan.log_size_bytes,
        last_entry_id=plan.last_entry_id,
        state=_CLOSED,
        format_version=FORMAT_VERSION,
        cluster_id=locator.cluster_id,
        topic_id=partition.topic_id.raw,
        topic=partition.topic,
        partition=partition.partition,
        segment_id=locator.segment_id.id.raw,
        start_offset=locator.start_offset,
        end_offset=data.end_offset,
        log_crc32c=plan.log_crc32c,
        block_size_bytes=plan.block_size_bytes,
        blocks=[
            LogBlock(
                log_position=block.log_position,
                log_size_bytes=block.log_size_bytes,
                entry_count=block.entry_count,
            )
            for block in plan.blocks
        ],
        point_log_positions=plan.points.log_positions,
        point_positions=plan.points.positions,
        indexes=data.indexes,
    )
    mappings = tuple(
        Mapping(first_entry_id=one.first_entry_id, number=one.number, position=one.position)
        for one in plan.blocks
    )
    try:
        return encode_index(
            RawIndex(
                data_size_bytes=plan.data_size_bytes,
                metadata=metadata.SerializeToString(deterministic=True),
                mappings=mappings,
            )
        )
    except ValueError as error:
        raise Invalid(f"segment {locator.segment_id}: {error}") from error


def parse_index(data: ByteBuffer) -> BlocksIndex:
    """The index; Corrupt unless lengths, blocks and the sparse table agree with each other."""
    raw = decode_index(data)
    try:
        metadata = BlocksMetadata.FromString(bytes(raw.metadata))
    except DecodeError as error:
        raise Corrupt(f"index object: its metadata cannot be read: {error}") from error
    if metadata.format_version != FORMAT_VERSION:
        raise Corrupt(f"index object: its format version {metadata.format_version} is not known")
    blocks = _blocks(raw, metadata.blocks, metadata.length)
    points = PositionPoints(
        log_positions=array("q", metadata.point_log_positions),
        positions=array("q", metadata.point_positions),
    )
    _check_points(points, blocks)
    return BlocksIndex(
        blocks=blocks,
        points=points,
        data_size_bytes=raw.data_size_bytes,
        log_size_bytes=metadata.length,
        log_crc32c=metadata.log_crc32c,
        segment_id=metadata.segment_id,
        indexes=metadata.indexes,
    )


def _blocks(raw: RawIndex, held: Sequence[LogBlock], log_bytes: int) -> tuple[Block, ...]:
    """Blocks follow each other without gap, in the data object and in the log."""
    if len(held) != len(raw.mappings):
        raise Corrupt(f"index object: {len(raw.mappings)} mappings and {len(held)} blocks")
    ends = [*(one.position for one in raw.mappings[1:]), raw.data_size_bytes][: len(held)]
    blocks: list[Block] = []
    log_position = 0
    for mapping, end, log in zip(raw.mappings, ends, held, strict=True):
        block = Block(
            number=mapping.number,
            first_entry_id=mapping.first_entry_id,
            position=mapping.position,
            size_bytes=end - mapping.position,
            log_position=log.log_position,
            log_size_bytes=log.log_size_bytes,
            entry_count=log.entry_count,
        )
        is_possible = block.log_size_bytes > 0 and block.entry_count > 0
        if block.log_position != log_position or not is_possible or block.entries_end > end:
            raise Corrupt(f"index object: {block} is impossible at position {log_position}")
        log_position = block.log_end
        blocks.append(block)
    if log_position != log_bytes:
        raise Corrupt(f"index object: blocks for {log_position} of {log_bytes} bytes of the log")
    return tuple(blocks)


def _check_points(points: PositionPoints, blocks: Sequence[Block]) -> None:
    """Points ascend, and each lies in a block at a distance that is possible there."""
    count = len(points.positions)
    if count != len(points.log_positions):
        raise Corrupt(f"index object: {len(points.log_positions)} log positions, {count} positions")
    at, last = 0, -1
    for log_position, position in zip(points.log_positions, points.positions, strict=True):
        while at < len(blocks) and log_position >= blocks[at].log_end:
            at += 1
        if at == len(blocks) or log_position <= last:
            raise Corrupt(f"index object: point ({log_position}, {position}) after {last}")
        block = blocks[at]
        headers, rest = divmod(
            position - block.first_entry - (log_position - block.log_position), ENTRY_HEADER_BYTES
        )
        if rest or not 0 <= headers < block.entry_count:
            raise Corrupt(f"index object: point ({log_position}, {position}) is none of {block}")
        last = log_position
