"""Collects the cluster's status: own partitions, those of every peer that answers, and gaps.

A partition that no service reports is shown with the reason; a silent peer never fails the call.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey
from rlm.api import deletion_messages, messages
from rlm.api.endpoints import Endpoints
from rlm.api.fan_out import ask_others
from rlm.api.peers import Peer, Peers
from rlm.api.per_partition import AT_EACH_REPORT_MS, FOREVER_MS, PerPartition
from rlm.api.ports import (
    Broker,
    PartitionStatus,
    PartitionStatuses,
    Pending,
    PendingDiscards,
    Problems,
)
from rlm.broker.answers import PartitionDescription
from rlm.plans.disk import LogDirReport
from rlm.plans.problems import Problem, ProblemKind, Severity, about, health_of
from rlm.stores.reports import StoreStatus
from rlm.tasks.copy_progress import Copying
from rlm.tasks.verify_runs import RunningVerify
from rlm.topics.partition_records import Freezes
from rlm.topics.ports import Settings
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from rlmm.settings_records import TopicRecord

UNKNOWN_MS = -1
"""Since when: not known."""


class _Row(NamedTuple):
    """What is said of one partition; rows sort by topic and partition. `encoded` is the row as a
    part of an encoded StatusResponse: answers of ten thousand rows are put together of these.
    """

    topic: str
    partition: int
    topic_id: bytes
    leader_epoch: int
    encoded: bytes


class ClusterStatus:
    """Collects the status; owns nothing."""

    def __init__(
        self,
        *,
        peers: Peers,
        statuses: PartitionStatuses,
        settings: Settings,
        broker: Broker,
        freezes: Freezes,
        pending: Pending,
        discards: PendingDiscards,
        problems: Problems,
        stores: Callable[[], Sequence[StoreStatus]],
        log_dirs: Callable[[], Sequence[LogDirReport]],
        copying: Callable[[], Copying],
        verifications: Callable[[], Sequence[RunningVerify]],
        endpoints: Endpoints,
        version: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._peers = peers
        self._statuses = statuses
        self._settings = settings
        self._broker = broker
        self._freezes = freezes
        self._pending = pending
        self._discards = discards
        self._problems = problems
        self._stores = stores
        self._log_dirs = log_dirs
        self._copying = copying
        self._verifications = verifications
        self._endpoints = endpoints
        self._version = version
        self._now_ms = now_ms
        self._rows = PerPartition(self._row)

    def own(self, topic: str) -> bytes:
        """The status that this service alone knows, encoded; `topic` empty = all topics."""
        rest, rows = self._own(topic)
        return _encoded(rest, rows)

    def _own(self, topic: str) -> tuple[pb.StatusResponse, list[_Row]]:
        problems = self._problems()
        statuses = self._statuses.led(problems)
        rows = self._rows.read([one.key for one in statuses], statuses)
        rest = pb.StatusResponse(
            freezes=self._freeze_rows(),
            services=[self._own_service(problems)],
            readers=self._reader_rows(),
            deletions=self._deletion_rows(topic),
            problems=[
                messages.problem_message(one, self._peers.node_id) for one in about(problems, topic)
            ],
        )
        return rest, [row for row in rows if topic in ("", row.topic)]

    def _row(self, status: PartitionStatus) -> tuple[_Row, int]:
        """The time left until a loss changes by time alone: such a row is made at each report."""
        row = _row(messages.partition_message(status, self._now_ms()))
        return row, FOREVER_MS if status.loss_at_ms is None else AT_EACH_REPORT_MS

    async def whole(self, asked: pb.StatusRequest, principal: str) -> bytes:
        """The status of this service, of all peers, and of partitions that none of them reports;
        encoded.
        """
        topic = asked.topic
        own, rows = self._own(topic)
        request = pb.StatusRequest(topic=topic, local_only=True, mask_secrets=asked.mask_secrets)
        answers = await ask_others(
            self._peers, lambda stubs: stubs.admin.Status, request, principal
        )
        services = [*own.services]
        problems = [*own.problems]
        for peer, answer in answers:
            if isinstance(answer, RemoteStorageError):
                silent = pb.ServiceStatus(problems=[str(answer)], alive=self._is_alive(peer))
                services.append(_service(peer, silent))
                problems += self._unreachable(peer, answer)
                continue
            rows += map(_row, answer.partitions)
            problems += answer.problems or _untyped_problems(peer, answer)
            services.append(_answered(peer, answer))
        try:
            rows += await self._missing(topic, rows)
        except RemoteStorageError as error:
            problems.append(self._not_described(error))
        services.sort(key=lambda row: row.node_id)
        rest = pb.StatusResponse(
            freezes=own.freezes,
            services=services,
            readers=own.readers,
            deletions=own.deletions,
            problems=_merged(problems),
        )
        return _encoded(rest, sorted(_newest(rows)))

    def _unreachable(self, peer: Peer, error: RemoteStorageError) -> list[pb.Problem]:
        """Reports a peer with a fresh heartbeat; peers of a silent one report it where it
        matters.
        """
        if not self._is_alive(peer):
            return []
        problem = Problem(
            kind=ProblemKind.PEER_UNREACHABLE,
            subject=f"node {peer.node_id}",
            text=f"its service says that it lives and does not answer at {peer.grpc_address}: "
            f"{error}",
            since_ms=self._now_ms(),
        )
        return [messages.problem_message(problem, self._peers.node_id)]

    def _is_alive(self, peer: Peer) -> bool:
        """Whether its last heartbeat is younger than three intervals."""
        age_ms = peer.heartbeat_age_ms
        return age_ms is not None and age_ms < self._endpoints.alive_ms

    def _not_described(self, error: RemoteStorageError) -> pb.Problem:
        """Then it is not known which partitions no service has reported."""
        problem = Problem(
            kind=ProblemKind.BROKER_UNKNOWN,
            subject="broker",
            text=f"it does not describe the enabled topics, so partitions may be missing: {error}",
            since_ms=self._now_ms(),
        )
        return messages.problem_message(problem, self._peers.node_id)

    async def _missing(self, topic: str, known: Iterable[_Row]) -> list[_Row]:
        records = {
            record.topic_id: record
            for record in self._settings.view.topics()
            if topic in ("", record.name) and record.state == "enabled"
        }
        topics = await self._broker.topics([record.name for record in records.values()])
        seen = {(row.topic_id, row.partition) for row in known}
        return [
            self._row(self._unanswered(record, partition.partition, partition))[0]
            for described in topics
            if (record := records.get(described.topic_id)) is not None
            for partition in described.partitions.values()
            if (described.topic_id.raw, partition.partition) not in seen
        ]

    def _unanswered(
        self, record: TopicRecord, partition: int, described: PartitionDescription
    ) -> PartitionStatus:
        why = (
            "no leader"
            if described.leader < 0
            else "its leader's service has not reported it (yet)"
        )
        start = self._settings.view.remote_log_start(PartitionKey(record.topic_id, partition))
        return PartitionStatus(
            topic=record.name,
            topic_id=record.topic_id,
            partition=partition,
            leader=described.leader,
            leader_epoch=described.leader_epoch,
            remote_log_start_offset=-1 if start is None else start,
            last_error=why,
        )

    def _own_service(self, problems: Sequence[Problem]) -> pb.ServiceStatus:
        words = [one.line for one in problems if one.topic == ""]
        found = pb.ServiceStatus(
            node_id=self._peers.node_id,
            version=self._version,
            problems=words,
            reachable=True,
            alive=True,
            stores=[messages.store_message(row) for row in self._stores()],
            health=health_of(problems),
            log_dirs=[messages.log_dir_message(row) for row in self._log_dirs()],
            copying=messages.copying_message(self._copying()),
            verifications=[
                messages.verification_message(one, self._peers.node_id)
                for one in self._verifications()
            ],
        )
        for peer in self._peers.known():
            if peer.node_id == self._peers.node_id:
                return _service(peer, found)
        return found

    def _reader_rows(self) -> list[pb.ReaderStatus]:
        return [
            messages.reader_message(one, is_alive=self._endpoints.is_alive(one))
            for one in self._endpoints.readers()
        ]

    def _deletion_rows(self, topic: str) -> list[pb.PendingDeletion]:
        records = self._settings.view.topics()
        found = [self._pending(record) for record in records if topic in ("", record.name)]
        rows = [deletion_messages.deletion_message(one) for one in found if one is not None]
        return [*rows, *map(deletion_messages.discard_message, self._discards.pending(topic))]

    def _freeze_rows(self) -> list[pb.Freeze]:
        return [messages.freeze_message(*row) for row in self._freezes.listed()]


def _answered(peer: Peer, answer: pb.StatusResponse) -> pb.ServiceStatus:
    """The status that a peer reports of itself, with its known address and heartbeat."""
    said = answer.services[0] if answer.services else pb.ServiceStatus()
    return _service(
        peer,
        pb.ServiceStatus(
            problems=[text for row in answer.services for text in row.problems],
            reachable=True,
            alive=True,
            stores=[store for row in answer.services for store in row.stores],
            health=said.health,
            log_dirs=said.log_dirs,
            copying=said.copying if said.HasField("copying") else None,
            verifications=said.verifications,
        ),
    )


def _untyped_problems(peer: Peer, answer: pb.StatusResponse) -> list[pb.Problem]:
    """The problems of a service whose version reports them as text only."""
    rows = [(f"node {peer.node_id}", text, "") for row in answer.services for text in row.problems]
    rows += [
        (f"{row.topic}-{row.partition}", text, row.topic)
        for row in answer.partitions
        for text in row.alarms
    ]
    return [
        messages.problem_message(
            Problem(
                kind=ProblemKind.OTHER, subject=subject, text=text, topic=topic, since_ms=UNKNOWN_MS
            ),
            peer.node_id,
        )
        for subject, text, topic in rows
    ]


def _merged(problems: Iterable[pb.Problem]) -> list[pb.Problem]:
    """A problem that several services report alike is one problem, dated by the first of them."""
    found: dict[tuple[str, str, str], pb.Problem] = {}
    for problem in problems:
        key = (problem.kind, problem.subject, problem.text)
        known = found.setdefault(key, problem)
        if known is not problem:
            known.node_ids.extend(problem.node_ids)
            known.since_ms = min(known.since_ms, problem.since_ms)
    return sorted(found.values(), key=_gravest_first)


def _gravest_first(problem: pb.Problem) -> tuple[int, str, str]:
    severities = [one.value for one in Severity]
    known = problem.severity in severities
    gravity = severities.index(problem.severity) if known else 0
    return gravity, problem.kind, problem.subject


def _service(peer: Peer, said: pb.ServiceStatus) -> pb.ServiceStatus:
    """What a service says of itself, with its known address and heartbeat."""
    row = pb.ServiceStatus()
    row.CopyFrom(said)
    row.node_id, row.version = peer.node_id, peer.version
    row.grpc_address, row.proxy_address = peer.grpc_address, peer.proxy_address
    row.heartbeat_age_ms = messages.age_ms(peer.heartbeat_age_ms)
    return row


def _row(message: fetch_pb2.PartitionDescription) -> _Row:
    return _Row(
        topic=message.topic,
        partition=message.partition,
        topic_id=message.topic_id,
        leader_epoch=message.leader_epoch,
        encoded=pb.StatusResponse(partitions=[message]).SerializeToString(),
    )


def _encoded(rest: pb.StatusResponse, rows: Iterable[_Row]) -> bytes:
    """The answer with these rows: messages one after the other are one message
    (https://protobuf.dev/programming-guides/encoding/#last-one-wins).
    """
    return b"".join((rest.SerializeToString(), *(row.encoded for row in rows)))


def _newest(rows: Iterable[_Row]) -> Iterable[_Row]:
    """One row for each partition; during a change of leadership, that of the higher epoch."""
    best: dict[tuple[bytes, int], _Row] = {}
    for row in rows:
        key = (row.topic_id, row.partition)
        known = best.setdefault(key, row)
        if known.leader_epoch < row.leader_epoch:
            best[key] = row
    return best.values()
