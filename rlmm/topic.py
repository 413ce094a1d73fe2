"""Defines and creates the two metadata topics, and detects when they are no longer the same (H6).

They are created explicitly and only where they never existed: the settings topic first, then the
ledger. A missing, recreated or differently configured topic is a problem that stops everything that
deletes or trims.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError

from kip405.acls import missing_acls, topic_acl
from kip405.errors import Unavailable
from kip405.ids import Uuid
from rlmm.clients import ConnectionSettings, make_admin
from rlmm.records import LEDGER_PARTITIONS

LEDGER_TOPIC = "__rlm_remote_log_metadata"
SETTINGS_TOPIC = "__rlm_settings"

TopicDescription = tuple[Uuid, Mapping[str, str], int]
"""(topic id, effective configuration, partition count)"""
DescribeTopic = Callable[[str], Awaitable[TopicDescription | None]]
"""Asks the cluster now, by name; None = positively unknown; Unavailable where no broker answers."""
SleepMs = Callable[[int], Awaitable[None]]
NowMs = Callable[[], int]

_CREATE_TIMEOUT_MS = 15_000
_WAIT_FOR_BROKERS_MS = 1_000
_NO_ERROR = 0
_TOPIC_ALREADY_EXISTS = 36
_NOT_AUTHORIZED = (29, 31)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One of the two topics as it must be configured (docs/reference/formats.md)."""

    name: str
    partition_count: int
    replication_factor: int

    @property
    def min_insync_replicas(self) -> int:
        return min(2, self.replication_factor)

    @property
    def configs(self) -> dict[str, str]:
        """Topic configuration at creation; short segments, so that compaction gets at the
        records.
        """
        return {
            "cleanup.policy": "compact",
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": "false",
            "message.timestamp.type": "LogAppendTime",
            "segment.ms": "600000",
            "max.compaction.lag.ms": "3600000",
        }

    def faults(self, configs: Mapping[str, str], partition_count: int) -> str | None:
        """What makes a topic unfit to hold our metadata; how often it is compacted is the
        operator's business.
        """
        if partition_count != self.partition_count:
            return f"has {partition_count} partitions instead of {self.partition_count}"
        for name in ("cleanup.policy", "unclean.leader.election.enable", "message.timestamp.type"):
            if configs.get(name) != self.configs[name]:
                return f"{name} is {configs.get(name)!r}, must be {self.configs[name]!r}"
        insync = configs.get("min.insync.replicas", "")
        if not insync.isdigit() or int(insync) < self.min_insync_replicas:
            return f"min.insync.replicas is {insync!r}, must be {self.min_insync_replicas} or more"
        return None


def ledger_spec(replication_factor: int) -> TopicSpec:
    return TopicSpec(
        name=LEDGER_TOPIC,
        partition_count=LEDGER_PARTITIONS,
        replication_factor=replication_factor,
    )


def settings_spec(replication_factor: int) -> TopicSpec:
    return TopicSpec(name=SETTINGS_TOPIC, partition_count=1, replication_factor=replication_factor)


class TopicGuard:
    """Remembers the id of one topic, and says what is wrong with the topic that now has its
    name.
    """

    def __init__(self, spec: TopicSpec, remembered: Uuid | None) -> None:
        self.spec = spec
        self.topic_id = remembered
        self.present_id: Uuid | None = None
        """Of the topic that had this name when it was last looked at, ours or not."""
        self.problem: str | None = None
        self.min_insync_replicas = 1
        """As the topic was configured at the last check; 1 = not known."""
        self.is_lost = False
        """Missing or recreated: what we have read is not what is there."""

    def check(self, description: TopicDescription | None) -> None:
        """Check the topic as the cluster describes it now; the first one seen is remembered."""
        if description is None:
            self._say("is missing", lost=True)
            return
        topic_id, configs, partition_count = description
        self.present_id = topic_id
        insync = configs.get("min.insync.replicas", "")
        self.min_insync_replicas = int(insync) if insync.isdigit() else 1
        faults = self.spec.faults(configs, partition_count)
        if self.topic_id is None and faults is None:
            self.topic_id = topic_id
        if self.topic_id not in (None, topic_id):
            self._say(f"was recreated: id {topic_id} instead of {self.topic_id}", lost=True)
        else:
            self._say(faults, lost=False)

    def _say(self, what: str | None, *, lost: bool) -> None:
        self.is_lost = lost
        remedy = "; see rlm ledger rebuild" if lost and self.spec.name == LEDGER_TOPIC else ""
        self.problem = None if what is None else f"topic {self.spec.name} {what}{remedy}"


class TopicGuards:
    """Those of both topics; `has_ledger` False = the ledger is not used."""

    def __init__(self, settings: TopicGuard, ledger: TopicGuard, *, has_ledger: bool) -> None:
        self.settings = settings
        self.ledger = ledger
        self.used = (settings, ledger) if has_ledger else (settings,)
        self._known_of: tuple[Uuid | None, ...] = ()
        self._known: frozenset[Uuid] = frozenset()

    def of(self, topic: str) -> TopicGuard:
        """The guard of one of them."""
        return self.settings if topic == SETTINGS_TOPIC else self.ledger

    @property
    def known_ids(self) -> frozenset[Uuid]:
        """Ids of the topics in use, and of those that have their names now: a topic that was
        recreated is the one that the next process uses. Empty until both names were looked at; the
        same object until there is another id.
        """
        settings, ledger = self.settings, self.ledger
        if settings.present_id is None or ledger.present_id is None:
            return self._known
        now = settings.topic_id, settings.present_id, ledger.topic_id, ledger.present_id
        if now != self._known_of:  # each request of a client asks
            self._known_of = now
            self._known = frozenset(one for one in now if one is not None)
        return self._known


async def create_topic(spec: TopicSpec, connection: ConnectionSettings, sleep_ms: SleepMs) -> None:
    """Create the topic with its full replication factor, waiting until that many brokers are alive.

    A topic that exists by now is success. MissingAcls where we may not; Unavailable where the
    cluster refuses otherwise or does not answer.
    """
    admin = make_admin(connection)
    try:
        await admin.start()
        while (alive := len((await admin.describe_cluster())["brokers"])) < spec.replication_factor:
            log.info(
                "waiting_for_brokers", topic=spec.name, alive=alive, needed=spec.replication_factor
            )
            await sleep_ms(_WAIT_FOR_BROKERS_MS)
        answer = await admin.create_topics([_new_topic(spec)], timeout_ms=_CREATE_TIMEOUT_MS)
        for _, code, *message in answer.topic_errors:
            if code in _NOT_AUTHORIZED:
                what = f"create topic {spec.name}: error {code} {message}"
                raise missing_acls(what, [topic_acl("Create", spec.name)])
            if code not in (_NO_ERROR, _TOPIC_ALREADY_EXISTS):
                raise Unavailable(f"create topic {spec.name}: error {code} {message}")
        log.info("topic_created", topic=spec.name, replication_factor=spec.replication_factor)
    except (KafkaError, OSError, TimeoutError) as error:
        raise Unavailable(f"create topic {spec.name}: {error!r}") from error
    finally:
        await admin.close()


def _new_topic(spec: TopicSpec) -> NewTopic:
    return NewTopic(
        name=spec.name,
        num_partitions=spec.partition_count,
        replication_factor=spec.replication_factor,
        topic_configs=spec.configs,
    )
