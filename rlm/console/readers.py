"""Who reads, as JSON values for the console: clients of the proxies, and where groups are. Pure.

Where a position is, in which tier, is not decided here: the page has the offsets of the partition
beside it, as those of a bar. Lists are bounded, and say how many there are.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rlm.console import rows
from rlm.console.paging import Page, Row, paged
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2

NAME_MAX: Final = 500
"""Of what a client calls itself or its group."""
_OFFSETS: Final = ("remote_start", "remote_end", "local_start", "log_end", "holes", "copying")
_Partitions = Mapping[int, fetch_pb2.PartitionDescription]


def clients(
    found: pb.ListClientsResponse,
    page: Page,
    partitions: Iterable[fetch_pb2.PartitionDescription],
) -> Row:
    """Kafka clients of all proxies, or of one topic with the positions of its groups, for which
    `partitions` are those of the topic.
    """
    return {
        "clients": paged(found.clients, page, {"": None}, lambda row: str(row.client_id), _client),
        "problems": [
            {"node_id": row.node_id, "text": row.problem[: rows.TEXT_MAX]}
            for row in found.problems[: rows.LISTED_MAX]
        ],
        "positions_problem": found.direct_problem[: rows.TEXT_MAX],
        **_positions(found, {row.partition: row for row in partitions}),
    }


def _client(row: pb.KafkaClient) -> Row:
    topics = sorted(row.topics, key=lambda one: -(one.remote_bytes + one.local_bytes))
    return {
        "name": row.client_id[:NAME_MAX],
        "principal": row.principal or None,
        "address": row.address,
        "software": _names(row.software),
        "groups": _names(row.groups),
        "connections": row.connections,
        "throttled_ms": row.throttled_ms,
        "remote_bytes": sum(one.remote_bytes for one in row.topics),
        "local_bytes": sum(one.local_bytes for one in row.topics),
        "topics": [
            {
                "topic": one.topic or None,
                "remote_bytes": one.remote_bytes,
                "local_bytes": one.local_bytes,
            }
            for one in topics[: rows.TEXTS_MAX]
        ],
        "topic_count": len(topics),
    }


def _names(found: Iterable[str]) -> list[str]:
    return [one[:NAME_MAX] for one in list(found)[: rows.TEXTS_MAX]]


def _positions(found: pb.ListClientsResponse, partitions: _Partitions) -> Row:
    """Those with the most left to read come first, and last those of which that is not known."""
    known = sorted(_of_groups(found), key=lambda one: _order(one, partitions))
    listed = known[: rows.LISTED_MAX]
    named = {one["partition"] for one in listed} & partitions.keys()
    return {
        "positions": listed,
        "position_count": len(known),
        "partitions": {str(number): _offsets(partitions[number]) for number in sorted(named)},
    }


def _of_groups(found: pb.ListClientsResponse) -> Iterator[Row]:
    """`group` is None for the lowest start of any share group."""
    for through, groups in (("proxy", found.proxied_groups), ("broker", found.direct_groups)):
        for row in groups:
            for one in row.positions:
                yield _position(row.group[:NAME_MAX], through, one)
    for one in found.share_starts:
        yield _position(None, None, one)


def _position(group: str | None, through: str | None, one: pb.GroupPosition) -> Row:
    return {
        "group": group,
        "through": through,
        "partition": one.partition,
        "offset": one.offset,
    }


def _order(one: Row, partitions: _Partitions) -> tuple[bool, int]:
    row = partitions.get(one["partition"])
    if row is None or row.log_end_offset < 0:
        return True, 0
    return False, one["offset"] - row.log_end_offset


def _offsets(row: fetch_pb2.PartitionDescription) -> dict[str, Any]:
    shown = rows.partition(row)
    return {name: shown[name] for name in _OFFSETS}
