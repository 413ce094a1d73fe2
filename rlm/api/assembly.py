"""The API put together from the parts of a service: topic verbs, both gRPC services, peers.

The composition root makes the parts, starts what is here and closes it; nothing is contacted before
`start`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm.api.admin import AdminParts, AdminService
from rlm.api.calls import Gate
from rlm.api.cluster_status import ClusterStatus
from rlm.api.fetch import FetchParts, FetchService
from rlm.api.peers import Peers
from rlm.api.places import Places
from rlm.api.ports import CopyNow, Ledger, PartitionStatuses, Problems
from rlm.api.reading import PartitionReading
from rlm.api.server import ApiServer, read_token
from rlm.api.topic_summaries import TopicSummaries
from rlm.broker.own_broker import OwnBroker
from rlm.clock import Clock
from rlm.proxy.tier import Tier
from rlm.topics.adopt import Adoption
from rlm.topics.cluster import OtherBrokers
from rlm.topics.freezes import Freezes
from rlm.topics.groups import ClusterGroups
from rlm.topics.growth import LogDirSpace
from rlm.topics.keeper import RetentionKeeper
from rlm.topics.ports import Settings, ShareGroups
from rlm.topics.readers import ReaderCheck
from rlm.topics.settle import Settler
from rlm.topics.starts import Starts
from rlm.topics.verbs import Parts as VerbParts
from rlm.topics.verbs import TopicVerbs


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """What the API takes from the configuration; durations in ms."""

    node_id: int
    principal: str
    version: str
    listen: str
    allow_insecure: bool
    token_file: Path | None
    log_dirs: Sequence[Path]
    retention_check_interval_ms: int
    retention_takeover: str
    barrier_deadline_ms: int = 10_000
    peer_timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiParts:
    """Collaborators; closed by the one who made them."""

    broker: OwnBroker
    settings: Settings
    ledger: Ledger
    tier: Tier
    share_groups: ShareGroups
    statuses: PartitionStatuses
    copy: CopyNow
    problems: Problems
    clock: Clock


class ApiSide:
    """`keeper.run` is a life of its own, to be run beside."""

    def __init__(self, settings: ApiSettings, parts: ApiParts) -> None:
        self._settings = settings
        self._parts = parts
        deadline_ms = settings.barrier_deadline_ms
        self._brokers = OtherBrokers(parts.broker, client_id=f"rlm-{settings.node_id}")
        self._settler = Settler(
            node_id=settings.node_id,
            broker=parts.broker,
            settings=parts.settings,
            clock=parts.clock,
            barrier_deadline_ms=deadline_ms,
        )
        self.verbs = TopicVerbs(self._verb_parts())
        self.freezes = Freezes(
            settings=parts.settings, broker=parts.broker, barrier_deadline_ms=deadline_ms
        )
        self.keeper = RetentionKeeper(
            verbs=self.verbs,
            settler=self._settler,
            broker=parts.broker,
            settings=parts.settings,
            clock=parts.clock,
            interval_ms=settings.retention_check_interval_ms,
            takeover=settings.retention_takeover,
            barrier_deadline_ms=deadline_ms,
        )
        self._server: ApiServer | None = None
        self._peers: Peers | None = None

    async def start(self) -> str:
        """Listen; answers the address taken. Invalid where that, or the token file, fails."""
        token = await read_token(self._settings.token_file)
        self._peers = Peers(
            node_id=self._settings.node_id,
            principal=self._settings.principal,
            token=token,
            settings=self._parts.settings,
            clock=self._parts.clock,
            timeout_ms=self._settings.peer_timeout_ms,
        )
        gate = Gate(token)
        self._server = ApiServer(
            admin=AdminService(self._admin_parts(gate, self._peers)),
            fetch=FetchService(self._fetch_parts(gate, self._peers)),
            listen=self._settings.listen,
            allow_insecure=self._settings.allow_insecure,
        )
        return await self._server.start()

    async def close(self) -> None:
        """Calls under way get a short grace; then connections to peers and brokers end."""
        if self._server is not None:
            await self._server.stop()
        if self._peers is not None:
            await self._peers.close()
        await self._brokers.close()

    def _verb_parts(self) -> VerbParts:
        parts = self._parts
        return VerbParts(
            node_id=self._settings.node_id,
            broker=parts.broker,
            offsets=self._brokers,
            settings=parts.settings,
            ledger=parts.ledger,
            disk=LogDirSpace(self._settings.log_dirs),
            starts=Starts(settings=parts.settings, offsets=self._brokers),
            readers=ReaderCheck(
                offsets=self._brokers,
                groups=ClusterGroups(self._brokers),
                share_groups=parts.share_groups,
                clock=parts.clock,
            ),
            settler=self._settler,
            clock=parts.clock,
            barrier_deadline_ms=self._settings.barrier_deadline_ms,
        )

    def _admin_parts(self, gate: Gate, peers: Peers) -> AdminParts:
        parts, deadline_ms = self._parts, self._settings.barrier_deadline_ms
        return AdminParts(
            gate=gate,
            verbs=self.verbs,
            freezes=self.freezes,
            adoption=Adoption(
                broker=parts.broker, settings=parts.settings, barrier_deadline_ms=deadline_ms
            ),
            summaries=TopicSummaries(
                settings=parts.settings,
                ledger=parts.ledger,
                broker=parts.broker,
                barrier_deadline_ms=deadline_ms,
            ),
            status=ClusterStatus(
                peers=peers,
                statuses=parts.statuses,
                settings=parts.settings,
                broker=parts.broker,
                freezes=self.freezes,
                problems=parts.problems,
                version=self._settings.version,
            ),
            statuses=parts.statuses,
            places=Places(parts.broker, parts.settings),
            peers=peers,
        )

    def _fetch_parts(self, gate: Gate, peers: Peers) -> FetchParts:
        parts, deadline_ms = self._parts, self._settings.barrier_deadline_ms
        return FetchParts(
            gate=gate,
            places=Places(parts.broker, parts.settings),
            peers=peers,
            reading=PartitionReading(
                tier=parts.tier, broker=parts.broker, barrier_deadline_ms=deadline_ms
            ),
            tier=parts.tier,
            broker=parts.broker,
            settings=parts.settings,
            ledger=parts.ledger,
            statuses=parts.statuses,
            copy=parts.copy,
            barrier_deadline_ms=deadline_ms,
        )
