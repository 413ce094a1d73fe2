"""Kafka clients of all proxies of the cluster, and who reads a topic past them (H19).

Each service knows the clients of its own proxy. A group reads past the proxies if it has committed
offsets of the topic, and no client that has named this group has read the topic through a proxy
since the services began: whoever reads nothing may name any group. What a service that does not
answer knows is not known here, so its row says why there is none (H38).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kip405.errors import RemoteStorageError
from rlm.api.fan_out import answers_of_others
from rlm.api.peers import Peers
from rlm.broker.answers import TopicDescription
from rlm.plans.client_activity import ClientRow
from rlm.topics.ports import GroupOffset, Groups, ShareGroups
from rlm.v1 import admin_pb2 as pb


class Broker(Protocol):
    """Our own broker."""

    async def topic(self, name: str) -> TopicDescription: ...


class ClusterClients:
    """Owns nothing. `rows`: the clients of this service's proxy."""

    def __init__(
        self,
        *,
        peers: Peers,
        rows: Callable[[], tuple[ClientRow, ...]],
        groups: Groups,
        share_groups: ShareGroups,
        broker: Broker,
    ) -> None:
        self._peers = peers
        self._rows = rows
        self._groups = groups
        self._share_groups = share_groups
        self._broker = broker

    def own(self, topic: str) -> pb.ListClientsResponse:
        """Those of this service's proxy that have read the topic, or all. Members of groups are
        there too, because the connections that read may be at another proxy.
        """
        rows = (row for row in self._rows() if not topic or topic in row.topics or row.groups)
        return pb.ListClientsResponse(clients=[_message(row, topic) for row in rows])

    async def whole(self, topic: str, principal: str) -> pb.ListClientsResponse:
        """Those of every proxy; with a topic also who reads it past them. NotFound: there is no
        such topic.
        """
        described = await self._broker.topic(topic) if topic else None
        found = self.own(topic)
        request = pb.ListClientsRequest(topic=topic, local_only=True)
        answers, problems = await answers_of_others(
            self._peers, lambda stubs: stubs.admin.ListClients, request, principal
        )
        rows = [row for answer in (found, *answers) for row in answer.clients]
        whole = pb.ListClientsResponse(
            clients=_joined(rows, topic),
            problems=[pb.ClientsProblem(node_id=at, problem=why) for at, why in problems.items()],
        )
        if described is not None:
            await self._add_direct(whole, described, _groups_of(whole.clients))
        return whole

    async def _add_direct(
        self, whole: pb.ListClientsResponse, topic: TopicDescription, seen: set[str]
    ) -> None:
        try:
            committed = await self._groups.committed(topic)
            starts = await self._share_groups.starts_now(topic.name)
        except RemoteStorageError as error:
            whole.direct_problem = str(error)
            return
        groups = _group_rows(committed)
        whole.direct_groups.extend(row for row in groups if row.group not in seen)
        whole.proxied_groups.extend(row for row in groups if row.group in seen)
        whole.share_starts.extend(_positions(starts))


def _message(row: ClientRow, topic: str) -> pb.KafkaClient:
    wanted = ((name, read) for name, read in row.topics.items() if topic in ("", name))
    return pb.KafkaClient(
        principal=row.name.principal,
        client_id=row.name.client_id,
        address=row.name.address,
        software=list(row.software),
        groups=list(row.groups),
        connections=row.connections,
        throttled_ms=row.throttled_ms,
        topics=[
            pb.ClientTopic(topic=name, remote_bytes=read.remote, local_bytes=read.local)
            for name, read in wanted
        ],
    )


def _joined(rows: Iterable[pb.KafkaClient], topic: str) -> list[pb.KafkaClient]:
    """One row for each client, whichever proxies it uses; with a topic only those that read it."""
    found: dict[tuple[str, str, str], pb.KafkaClient] = {}
    for row in rows:
        name = row.principal, row.client_id, row.address
        known = found.get(name)
        if known is None:
            found[name] = known = pb.KafkaClient()
            known.CopyFrom(row)
        else:
            _add(known, row)
    shown = (row for row in found.values() if not topic or row.topics)
    return sorted(shown, key=lambda row: (row.principal, row.client_id, row.address))


def _groups_of(readers: Iterable[pb.KafkaClient]) -> set[str]:
    """Of clients that have names: which of all others has read, and which has named a group, is
    not known.
    """
    return {group for row in readers if row.address for group in row.groups}


def _add(known: pb.KafkaClient, row: pb.KafkaClient) -> None:
    known.connections += row.connections
    known.throttled_ms += row.throttled_ms
    known.software.extend(one for one in row.software if one not in known.software)
    known.groups.extend(one for one in row.groups if one not in known.groups)
    topics = {one.topic: one for one in known.topics}
    for one in row.topics:
        if one.topic in topics:
            topics[one.topic].remote_bytes += one.remote_bytes
            topics[one.topic].local_bytes += one.local_bytes
        else:
            known.topics.append(one)


def _group_rows(committed: Iterable[GroupOffset]) -> list[pb.DirectGroup]:
    found: dict[str, dict[int, int]] = {}
    for one in committed:
        found.setdefault(one.group, {})[one.partition] = one.offset
    return [
        pb.DirectGroup(group=group, positions=_positions(offsets))
        for group, offsets in sorted(found.items())
    ]


def _positions(offsets: Mapping[int, int]) -> list[pb.GroupPosition]:
    return [
        pb.GroupPosition(partition=partition, offset=offset)
        for partition, offset in sorted(offsets.items())
    ]
