"""What each source answered when the doctor asked it, or why it did not. Pure.

A check takes the answers that it needs by `known`. If one is not there, the check was not made,
and is reported as such: what could not be asked is never sound (H38).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from kip405.acls import Acl
from kip405.contracts import StoreFinding, StoreIdentity
from kip405.ids import Uuid
from rlm.broker.answers import BrokerNode, TopicConfigValue, TopicDescription
from rlm.config import ServiceConfig
from rlm.log_dir.identity import BrokerIdentity
from rlm.plans.broker_listeners import BrokerConfig
from rlm.plans.disk import LogDirReport
from rlm.plans.problems import Severity
from rlmm.settings_records import TopicRecord
from rlmm.settings_view import SettingsView
from rlmm.topic import TopicDescription as OwnTopic

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unasked:
    """A source that could not be asked, or did not answer."""

    reason: str


class NotAsked(Exception):
    """A check needs what is not known."""


class NotWanted(Exception):
    """A check is made with an option only, which was not given."""


def known(answer: T | Unasked) -> T:
    """The answer; NotAsked with the reason where there is none."""
    if isinstance(answer, Unasked):
        raise NotAsked(answer.reason)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedHost:
    """This machine and the limits of this process, which a service of the same unit shares.

    `libc`: name and version of the C library, both empty where that is not known. `open_files`: the
    hard limit, None = there is none.
    """

    libc: tuple[str, str]
    open_files: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDirectory:
    """One directory in log.dirs. `topic_id` None = it does not say. `fault`: what of it cannot be
    read, and why; empty = nothing.
    """

    path: str
    topic_id: Uuid | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDisks:
    """log.dirs. `identities`: what the meta.properties of each says, or why that is not known.

    `faults`: directories that cannot be listed. `partitions`: by topic and partition; one that is
    in two log dirs has two.
    """

    identities: Mapping[str, BrokerIdentity | str]
    faults: Mapping[str, str]
    partitions: Mapping[tuple[str, int], tuple[PartitionDirectory, ...]]
    spaces: tuple[LogDirReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBroker:
    """The broker behind broker.direct.address. `too_old`: why its version is not supported."""

    cluster_id: str
    nodes: tuple[BrokerNode, ...]
    config: BrokerConfig
    too_old: str = ""


TopicConfig = Mapping[str, TopicConfigValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTopic:
    """One topic that is enabled, or that seems to be deleted. `description`: of the topic that has
    its name now, None = there is none. `configs`: its effective configuration by every live broker.
    """

    record: TopicRecord
    description: TopicDescription | None
    configs: Mapping[int, TopicConfig | Unasked]

    @property
    def present(self) -> TopicDescription | None:
        """The topic itself, not another one of its name."""
        found = self.description
        return found if found is not None and found.topic_id == self.record.topic_id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedOwnTopic:
    """The ledger or the settings topic. `found` None = it does not exist."""

    found: OwnTopic | None
    least_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSettings:
    """The settings topic, read to its end. `monotonic_ms`, `now_ms`: when. `is_there` False:
    there is no such topic, and the view is empty.
    """

    view: SettingsView
    monotonic_ms: int
    now_ms: int
    is_there: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStore:
    """One configured store. `problem`: why it does not answer. `identity`: None = it has none."""

    name: str
    uri: str = ""
    identity: StoreIdentity | None = None
    findings: tuple[StoreFinding, ...] = ()
    prefix: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedReaders:
    """Who reads one topic that is trimmed. `share_starts`: where share groups begin, by
    partition.
    """

    share_starts: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProblem:
    """A problem that a running service reports (docs/reference/problems.md)."""

    severity: Severity
    kind: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedService:
    """What the running services know. `direct_groups`: by topic that is trimmed, groups with
    committed offsets that no proxy has seen. `copy_bytes_per_second`: of all services together, in
    the last minute.
    """

    problems: tuple[ServiceProblem, ...]
    direct_groups: Mapping[str, tuple[str, ...] | Unasked]
    copy_bytes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedClient:
    """What a client learns that begins at `bootstrap`: the cluster and the brokers' addresses.
    `refused`: by node id, why no connection to that address was made.
    """

    bootstrap: str
    cluster_id: str
    nodes: tuple[BrokerNode, ...]
    refused: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that was asked. `connection_rates`: new connections a second that the broker takes of an
    address, None = of each other. `remembered`: ids of ledger and settings, by name, that a service
    beside this broker has written to its state.dir. `service` None: none has ever run beside this
    broker. `client` None: nobody wanted to know.
    """

    config: ServiceConfig
    host: ObservedHost
    disks: ObservedDisks | Unasked
    broker: ObservedBroker | Unasked
    connection_rates: Mapping[str | None, float] | Unasked
    settings: ObservedSettings | Unasked
    own_topics: Mapping[str, ObservedOwnTopic] | Unasked
    remembered: Mapping[str, Uuid] | Unasked
    topics: tuple[ObservedTopic, ...] | Unasked
    missing_acls: tuple[Acl, ...] | Unasked
    stores: tuple[ObservedStore, ...] | Unasked
    readers: Mapping[str, ObservedReaders] | Unasked
    service: ObservedService | Unasked | None
    client: ObservedClient | Unasked | None = None
