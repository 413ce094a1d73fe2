"""Checks that services have the rights that a topic's mode needs: before a change, and
periodically.

Before anything is altered, every right is used once on that topic in a way that changes nothing:
DeleteRecords up to offset 0 lies below every log start, whatever changes meanwhile; configurations
are altered with validate_only. DeleteRecords and Fetch go to a partition's leader, so each leader's
service proves its own rights, at its own broker (H40). Must not know gRPC.

AccessWatch checks periodically that this process still has every ACL that it needs (H40). When a
right is revoked, no call may fail at once, and the calls that fail later may not point to the ACL.
A missing ACL is one problem until it is granted again; the problem watch
(rlm/service/problems.py) logs it once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from kip405.acls import CLUSTER_NAME, Acl, MissingAcls, grants, missing_acls, of_principal
from kip405.errors import Fenced, RemoteStorageError, Unavailable
from rlm.broker.answers import LocalRecords, TopicDescription
from rlm.clock import Clock
from rlm.plans.problem_rules import acl_finding
from rlm.plans.problems import Finding
from rlm.topics.needed_acls import not_granted, topics_of
from rlm.topics.ports import Broker, Groups, ShareGroups
from rlm.topics.retention_configs import TAKEN_OVER, UNLIMITED

_BELOW_EVERY_LOG = 0
_PROOF_TIMEOUT_MS = 5_000

Use = Callable[[], Awaitable[object]]


class ProvingBroker(Broker, Protocol):
    """Our own broker's direct listener, with the calls that tasks make later."""

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int
    ) -> LocalRecords: ...

    async def delete_records(
        self, topic: str, partition: int, offset: int, *, timeout_ms: int
    ) -> int: ...


class Access(Protocol):
    """The access check of one service, or of all services of the cluster by node id."""

    async def missing(self, topic: str, *, tier: bool) -> tuple[Acl, ...]:
        """ACLs that this service lacks for a topic in mode tier or copy."""
        ...


class PeerAccess(Protocol):
    """The same check by another broker's service."""

    async def missing(self, node_id: int, topic: str, *, tier: bool) -> tuple[Acl, ...]:
        """Any RemoteStorageError: the service could not be asked, or could not find out."""
        ...


class ServiceAccess:
    """Implements Access for this service, at its own broker. `alters_configs`: whether it sets the
    retention of topics in mode tier itself.
    """

    def __init__(
        self,
        *,
        node_id: int,
        broker: ProvingBroker,
        groups: Groups,
        share_groups: ShareGroups,
        alters_configs: bool,
    ) -> None:
        self._alters_configs = alters_configs
        self._node_id = node_id
        self._broker = broker
        self._groups = groups
        self._share_groups = share_groups

    async def missing(self, topic: str, *, tier: bool) -> tuple[Acl, ...]:
        """NotFound: no such topic. Invalid: the cluster's policy refuses our retention.

        Unavailable: no answer, so nothing is proven.
        """
        broker = self._broker
        uses: list[Use] = [lambda: broker.topic(topic), lambda: broker.topic_config(topic)]
        if tier:
            uses += await self._uses_of_tier(topic)
        found = [acl for use in uses for acl in await _refused(use)]
        if tier:
            found += await self._missing_for_readers(topic)
        return tuple(sorted(set(found)))

    async def _uses_of_tier(self, topic: str) -> list[Use]:
        broker, partition = self._broker, await self._led_partition(topic)
        unlimited = dict.fromkeys(TAKEN_OVER, UNLIMITED)
        uses: list[Use] = [
            lambda: broker.fetch(topic, partition, _BELOW_EVERY_LOG, max_bytes=1),
            lambda: broker.delete_records(
                topic, partition, _BELOW_EVERY_LOG, timeout_ms=_PROOF_TIMEOUT_MS
            ),
        ]
        if self._alters_configs:
            uses.append(
                lambda: broker.alter_topic_config(topic, set_values=unlimited, validate_only=True)
            )
        return uses

    async def _led_partition(self, topic: str) -> int:
        """A partition led by our broker, else any: a broker checks the principal before
        leadership.
        """
        try:
            described = await self._broker.topic(topic)
        except MissingAcls:
            return 0
        led = (
            row.partition for row in described.partitions.values() if row.leader == self._node_id
        )
        return min(led, default=0)

    async def _missing_for_readers(self, topic: str) -> list[Acl]:
        """Groups are read before each trim (H19). Other errors of them are reported by the code
        that reads them.
        """
        found: list[Acl] = []
        try:
            found += await _refused(lambda: self._share_groups.starts_now(topic))
            found += await _refused(self._committed_of(topic))
        except RemoteStorageError:
            return found
        return found

    def _committed_of(self, topic: str) -> Use:
        async def ask() -> None:
            await self._groups.committed(await self._broker.topic(topic))

        return ask


class ClusterAccess:
    """All services that lead a partition of a topic, this one first. `principal`: of the services,
    None = only brokers know.
    """

    def __init__(
        self, *, node_id: int, own: Access, peers: PeerAccess, principal: str | None
    ) -> None:
        self._principal = principal
        self._node_id = node_id
        self._own = own
        self._peers = peers

    async def check(self, topic: TopicDescription, *, tier: bool, force: bool) -> tuple[str, ...]:
        """Warnings for the operator. MissingAcls: with all ACLs that are missing, at any service.

        Unavailable, unless `force` or nothing is to be trimmed: a service could not prove its
        rights.
        """
        found = list(await self._own.missing(topic.name, tier=tier))
        leaders = {row.leader for row in topic.partitions.values() if row.leader >= 0}
        others = sorted(leaders - {self._node_id})
        answers = await asyncio.gather(*(self._ask(node, topic.name, tier) for node in others))
        unproven: list[str] = []
        for node, answer in zip(others, answers, strict=True):
            if isinstance(answer, RemoteStorageError):
                unproven.append(f"the service of broker {node}: {answer}")
            else:
                found += answer
        if found:
            raise _refusal(topic.name, of_principal(found, self._principal))
        if not unproven:
            return ()
        text = (
            f"whether every leader of {topic.name} has the ACLs it needs is not proven: "
            f"{'; '.join(unproven)}"
        )
        if tier and not force:
            raise Unavailable(f"{text}; --force goes on all the same")
        return (text,)

    async def refusal(self, topic: str, known: MissingAcls, *, tier: bool) -> MissingAcls:
        """The error for a topic that cannot even be described: it names all ACLs that this service
        lacks, not only the first.
        """
        try:
            found = await self._own.missing(topic, tier=tier)
        except RemoteStorageError:
            return known
        return _refusal(topic, of_principal((*known.acls, *found), self._principal))

    async def _ask(
        self, node_id: int, topic: str, tier: bool
    ) -> tuple[Acl, ...] | RemoteStorageError:
        try:
            return await self._peers.missing(node_id, topic, tier=tier)
        except RemoteStorageError as error:
            return error


async def _refused(use: Use) -> tuple[Acl, ...]:
    """The missing ACLs for which a call was refused; Fenced shows that none was missing."""
    try:
        await use()
    except MissingAcls as error:
        return error.acls
    except Fenced:
        return ()
    return ()


def _refusal(topic: str, acls: Iterable[Acl]) -> MissingAcls:
    error = missing_acls(f"topic {topic} is not enabled, nothing was altered", acls)
    commands = " and ".join(
        f"kafka-acls.sh --bootstrap-server BROKER {options}" for options in grants(error.acls)
    )
    return MissingAcls(f"{error}; to add: {commands}", error.acls)


log = structlog.get_logger(__name__)


class ClusterRights(Protocol):
    """The operations that the broker currently allows us (rlm.broker.many.AllowedOperations)."""

    async def on_cluster(self) -> frozenset[str] | None: ...

    async def on_topics(self, topics: Sequence[str]) -> Mapping[str, frozenset[str] | None]: ...


async def missing_of(rights: ClusterRights, needed: Sequence[Acl]) -> tuple[Acl, ...] | None:
    """Which of these ACLs we lack now; None = the broker does not say. Unavailable: no answer."""
    allowed = {
        CLUSTER_NAME: await rights.on_cluster(),
        **await rights.on_topics(topics_of(needed)),
    }
    return None if None in allowed.values() else not_granted(needed, allowed)


class AccessWatch:
    """`run` checks until cancelled; `missing` is the result of the last check, None = unknown.
    `needed`: what this process needs now. `principal`: see ClusterAccess.
    """

    def __init__(
        self,
        *,
        allowed: ClusterRights,
        needed: Callable[[], Sequence[Acl]],
        clock: Clock,
        interval_ms: Callable[[], int],
        principal: str | None,
    ) -> None:
        self._principal = principal
        self._allowed = allowed
        self._needed = needed
        self._clock = clock
        self._interval_ms = interval_ms
        self.missing: tuple[Acl, ...] | None = None

    def findings(self) -> tuple[Finding, ...]:
        """One problem for each missing ACL."""
        named = of_principal(self.missing or (), self._principal)
        return tuple(acl_finding(acl) for acl in named)

    async def run(self) -> None:
        """Check at every interval; a broker that does not answer is asked again."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms())

    async def check(self) -> None:
        """Check now."""
        try:
            self.missing = await missing_of(self._allowed, self._needed())
        except RemoteStorageError as error:
            self.missing = None
            log.info("access_not_known", error=str(error))
