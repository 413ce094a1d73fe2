"""The rules for topics that may be enabled, and for their retention. Pure.

cleanup.policy must be exactly `delete` (H35) and Kafka's own tiering off; internal topics and our
own topics are refused. Retention follows LogConfig's rules (rlm.plans.retention).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kip405.errors import Invalid
from rlm.broker.answers import TopicConfigValue, TopicDescription
from rlm.plans.offload import AS_LOCAL
from rlm.plans.retention import AS_TOTAL, Retention
from rlm.topics.retention_configs import RETENTION_BYTES, RETENTION_MS
from rlmm.settings_records import OffloadThresholds, TopicRecord, TotalRetention
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

Config = Mapping[str, TopicConfigValue]

UNSET = -2
"""A threshold that the topic no longer sets itself."""

_OUR_OWN = (LEDGER_TOPIC, SETTINGS_TOPIC)
_INTERNAL = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOptions:
    """What a caller requested; None = not given."""

    retention_ms: int | None = None
    retention_bytes: int | None = None
    local_retention_ms: int | None = None
    local_retention_bytes: int | None = None


def is_internal(topic: TopicDescription) -> bool:
    """Whether the topic is Kafka's or this service's own. No pattern means it."""
    return topic.internal or topic.name in _INTERNAL or topic.name in _OUR_OWN


def refuse(topic: TopicDescription, config: Config) -> None:
    """Invalid, with the reason, for a topic that must not be enabled."""
    if topic.name in _OUR_OWN:
        raise Invalid(f"topic {topic.name} is this service's own and cannot be enabled")
    if is_internal(topic):
        raise Invalid(f"topic {topic.name} is internal and cannot be enabled")
    policy = value_of(config, "cleanup.policy")
    if policy != "delete":
        raise Invalid(
            f"topic {topic.name} has cleanup.policy={policy}; only topics with exactly "
            "cleanup.policy=delete can be enabled"
        )
    if value_of(config, "remote.storage.enable") == "true":
        raise Invalid(
            f"topic {topic.name} has remote.storage.enable=true: Kafka's own tiered storage "
            "and this one exclude each other"
        )


def choose_retention(
    asked: RetentionOptions, before: TopicRecord | None, config: Config
) -> Retention:
    """What was requested, else as before, else the topic's current effective retention.

    Invalid where LogConfig would refuse the result.
    """
    if before is None:
        total_ms, total_bytes = total_of(config).retention_ms, total_of(config).retention_bytes
        local_ms = local_bytes = AS_TOTAL
    else:
        total_ms, total_bytes = before.retention_ms, before.retention_bytes
        local_ms, local_bytes = before.local_retention_ms, before.local_retention_bytes
    return Retention(
        total_ms=_first(asked.retention_ms, total_ms),
        total_bytes=_first(asked.retention_bytes, total_bytes),
        local_ms=_first(asked.local_retention_ms, local_ms),
        local_bytes=_first(asked.local_retention_bytes, local_bytes),
    )


def choose_offload(asked: OffloadThresholds, before: TopicRecord | None) -> OffloadThresholds:
    """What was requested, else as before; `UNSET` = as the service says. Invalid below -1."""
    known = OffloadThresholds() if before is None else before.offload

    def one(name: str, wanted: int | None, otherwise: int | None, least: int) -> int | None:
        if wanted is not None and wanted != UNSET and wanted < least:
            raise Invalid(f"{name}={wanted} is below {least}; {UNSET} = as the service says")
        return otherwise if wanted is None else None if wanted == UNSET else wanted

    return OffloadThresholds(
        copy_lag_ms=one("remote.copy.lag.ms", asked.copy_lag_ms, known.copy_lag_ms, AS_LOCAL),
        copy_lag_bytes=one(
            "remote.copy.lag.bytes", asked.copy_lag_bytes, known.copy_lag_bytes, AS_LOCAL
        ),
        deletion_lag_ms=one(
            "offload.deletion.lag.ms", asked.deletion_lag_ms, known.deletion_lag_ms, 0
        ),
    )


def total_of(config: Config) -> TotalRetention:
    """The topic's current effective retention at the brokers."""
    return TotalRetention(
        retention_ms=_number(config, RETENTION_MS), retention_bytes=_number(config, RETENTION_BYTES)
    )


def retention_of(record: TopicRecord) -> Retention:
    """The stored retention; Invalid if a stored settings record breaks the rules."""
    return Retention(
        total_ms=record.retention_ms,
        total_bytes=record.retention_bytes,
        local_ms=record.local_retention_ms,
        local_bytes=record.local_retention_bytes,
    )


MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """How safely the brokers keep what they have acknowledged (H35); None = not known."""

    min_insync_replicas: int | None = None
    unclean_leader_election: bool | None = None


def durability_of(config: Config) -> Durability:
    """By the topic's effective configuration."""
    insync = value_of(config, MIN_INSYNC_REPLICAS)
    unclean = value_of(config, UNCLEAN_LEADER_ELECTION)
    return Durability(
        min_insync_replicas=int(insync) if insync.isdigit() else None,
        unclean_leader_election=unclean == "true" if unclean in ("true", "false") else None,
    )


def durability_warnings(durability: Durability, topic: TopicDescription) -> tuple[str, ...]:
    """What may make a new leader's log end below records that were acknowledged and copied (H35).
    With one replica neither setting matters.
    """
    replicas = max((len(one.replicas) for one in topic.partitions.values()), default=0)
    if replicas <= 1:
        return ()
    texts = []
    if durability.min_insync_replicas == 1:
        texts.append(
            f"{MIN_INSYNC_REPLICAS} is 1 with {replicas} replicas: a record may be acknowledged "
            "and copied while one broker has it; if that broker is lost, the partition may freeze "
            "(H4)"
        )
    if durability.unclean_leader_election:
        texts.append(
            f"{UNCLEAN_LEADER_ELECTION} is true: a new leader may lack records that were "
            "acknowledged and copied, and the partition may then freeze (H4)"
        )
    return tuple(texts)


def value_of(config: Config, name: str) -> str:
    """Effective value of a setting, empty where the broker does not know it."""
    found = config.get(name)
    return (found.value or "") if found else ""


def _number(config: Config, name: str) -> int:
    text = value_of(config, name)
    try:
        return int(text)
    except ValueError as error:
        raise Invalid(f"the broker says {name}={text!r}, not a number") from error


def _first(asked: int | None, otherwise: int) -> int:
    return otherwise if asked is None else asked
