"""Makes a topic's configuration agree with its settings record, after a crash at any point too
(H14).

Changes are idempotent and follow the settings record, never the reverse. After each change the
settings are read to a barrier. If the settings record changed meanwhile, the newer one is followed;
and a service whose change came after another service had given the retention back reverts its own
change.

The settings record decides whose retention acts on a topic and what its configuration must be:

    record                   originals   the topic's own retention.ms and .bytes
    enabled, mode tier       kept        -1, set on the topic: our retention acts
    the same, given back     kept        limits set on the topic, as a disk is nearly full (H18)
    seems to be deleted      kept        the same, if it is there after all
    anything else            kept        interrupted: restore them, then remove the originals
    anything else            none        not ours to change

The settings record is written and read back before the first change, so that a crash in between
leaves a record that says what to do. When the configuration is given back, only a -1 that is set on
the topic, or a limit of ours, counts as ours: another value is a newer choice by somebody else.
Such a choice is written into the originals before it is set back to -1, so that the administrator's
last choice is what is restored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from kip405.errors import NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.topics.ports import Broker, NotLeader, Settings
from rlm.topics.recreated import is_gone_end
from rlm.topics.retention_configs import TAKEN_OVER, UNLIMITED
from rlm.topics.rules import Config, value_of
from rlmm.settings_records import TopicRecord

ENFORCE = "enforce"
EXTERNAL = "external"
"""Values of the setting retention.takeover; with `external` an operator sets the -1, not we."""


Originals = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One IncrementalAlterConfigs: values to set, and names to unset."""

    set_values: Mapping[str, str]
    unset: tuple[str, ...] = ()


def is_taken_over(record: TopicRecord) -> bool:
    """Whether the broker's retention must be off; also where the topic seems to be deleted: if it
    is there after all, its broker would delete what is not copied yet (H7).
    """
    return record.mode == "tier" and (record.state == "enabled" or is_gone_end(record))


def originals_of(config: Config) -> dict[str, str | None]:
    """The values set on the topic itself before we change them; None = no value is set."""
    return {name: _own(config, name) for name in TAKEN_OVER}


def chosen_since(record: TopicRecord, config: Config) -> dict[str, str | None]:
    """The originals, with what others have set or unset on the topic since they were taken over.
    `config`: read by a broker that already knows our own last change.
    """
    present = {name: _own(config, name) for name in TAKEN_OVER}
    return {
        **record.originals,
        **{name: value for name, value in present.items() if not _is_ours(record, name, value)},
    }


def _is_ours(record: TopicRecord, name: str, value: str | None) -> bool:
    """Whether a topic's own value is one that we set."""
    given = record.given_back
    limits = () if given is None else (given.limits.get(name), given.former_limits.get(name))
    return value == UNLIMITED or (value is not None and value in limits)


def _wanted(record: TopicRecord) -> dict[str, str]:
    """The topic's own values while its retention is taken over."""
    wanted = dict.fromkeys(TAKEN_OVER, UNLIMITED)
    given = record.given_back
    return wanted if given is None or given.ended_ms is not None else wanted | dict(given.limits)


def _changes_of_ours(record: TopicRecord, config: Config) -> ConfigChange | None:
    """The change that makes those values agree that we set ourselves; None = they do."""
    changed = {
        name: value
        for name, value in _wanted(record).items()
        if _own(config, name) != value and _is_ours(record, name, _own(config, name))
    }
    return ConfigChange(set_values=changed) if changed else None


def is_foreign_bound(record: TopicRecord, config: Config) -> bool:
    """Whether somebody else set or unset a taken-over retention."""
    return any(not _is_ours(record, name, _own(config, name)) for name in TAKEN_OVER)


def needed_change(record: TopicRecord, config: Config) -> ConfigChange | None:
    """The change that makes the configuration agree with the settings record; None = it does."""
    if is_taken_over(record):
        changed = {
            name: value for name, value in _wanted(record).items() if _own(config, name) != value
        }
        return ConfigChange(set_values=changed) if changed else None
    return _giving_back(record, config)


def _giving_back(record: TopicRecord, config: Config) -> ConfigChange | None:
    """The change that restores the originals where our values are still set."""
    ours = {
        name: value
        for name, value in record.originals.items()
        if _is_ours(record, name, own := _own(config, name)) and value != own
    }
    if not ours:
        return None
    return ConfigChange(
        set_values={name: value for name, value in ours.items() if value is not None},
        unset=tuple(name for name, value in ours.items() if value is None),
    )


def is_unfinished(record: TopicRecord, config: Config) -> bool:
    """Whether a change was begun and not finished: originals are in effect or to be restored."""
    if is_taken_over(record):
        return (
            needed_change(record, config) is not None and originals_of(config) == record.originals
        )
    return bool(record.originals)


def bounds_of(config: Config) -> str:
    """The effective limits of the broker's own retention, empty where there is none."""
    return ", ".join(
        f"{name}={value}" for name in TAKEN_OVER if (value := value_of(config, name)) != UNLIMITED
    )


def foreign_limits(record: TopicRecord, config: Config) -> dict[str, int]:
    """The effective limits of the broker's own retention that somebody else has set, by name."""
    return {
        name: int(value)
        for name in TAKEN_OVER
        if (value := value_of(config, name)) not in (UNLIMITED, "")
        and not _is_ours(record, name, _own(config, name))
    }


def _own(config: Config, name: str) -> str | None:
    found = config.get(name)
    return found.value if found is not None and found.is_topic_level else None


log = structlog.get_logger(__name__)

_MAX_PASSES = 8
_POLL_MS = 50
_SHOWN_WITHIN_MS = 15_000
"""What a broker takes until it returns a change that the controller has accepted, be it busy."""
_KNOWN_WITHIN_MS = 2_000
"""What it takes until it knows a topic that has been created at another broker."""


class Settler:
    """Alters topic configurations; only the service of the partition-0 leader does so.

    With `alters_configs` False (retention.takeover=external) nothing is ever altered. Originals of
    an earlier takeover are only forgotten, when the topic leaves mode tier.
    """

    def __init__(
        self,
        *,
        node_id: int,
        broker: Broker,
        settings: Settings,
        clock: Clock,
        barrier_deadline_ms: int,
        alters_configs: bool,
    ) -> None:
        self.alters_configs = alters_configs
        self._node_id = node_id
        self._broker = broker
        self._settings = settings
        self._clock = clock
        self._barrier_deadline_ms = barrier_deadline_ms

    async def led_topic(self, name: str) -> TopicDescription:
        """The topic, led here in partition 0; NotFound, Unavailable without leader, NotLeader."""
        topic = await self._broker.topic(name)
        first = topic.partitions.get(0)
        if first is None or first.leader < 0:
            raise Unavailable(f"partition {name}-0 has no leader now")
        if first.leader != self._node_id:
            raise NotLeader(
                f"{name}-0 is led by broker {first.leader}: its service alters the topic",
                leader=first.leader,
            )
        return topic

    async def wait_known(self, name: str) -> None:
        """Wait a moment for a topic, and for its leader, of which our broker may not have heard
        yet: it was perhaps created just now. NotFound, Unavailable: there is none after that.
        Whoever asks for the topic next gets another error.
        """
        deadline_ms = self._clock.monotonic_ms() + _KNOWN_WITHIN_MS
        while True:
            try:
                await self.led_topic(name)
            except (NotFound, Unavailable):
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise
                await self._clock.sleep_ms(_POLL_MS)
            except RemoteStorageError:
                return
            else:
                return

    async def settle(
        self, name: str, topic_id: Uuid, remembered: TopicRecord | None = None
    ) -> TopicRecord:
        """Apply what the newest settings record requires; returns that settings record.
        `remembered`: an earlier one that was followed.

        Invalid: the cluster refuses the change (alter.config.policy). Unavailable: try again.
        """
        for _ in range(_MAX_PASSES):
            await self._settings.barrier(self._barrier_deadline_ms)
            record = self._record(name, topic_id)
            if not self.alters_configs:
                if not is_taken_over(record) and record.originals:
                    await self._forget_originals(name, topic_id, record)
                    continue
                return record
            if is_taken_over(record):
                remembered = record
            config = await self._broker.topic_config(name)
            change = needed_change(_owed(record, remembered), config)
            if change is not None and await self._remember_choice(name, record):
                continue
            if change is not None:
                # Reverting our own late change needs no leadership: no other service knows it.
                if record.originals or is_taken_over(record):
                    await self._refuse_unless_led(name, topic_id)
                await self._alter(name, change)
            elif is_taken_over(record) or not record.originals:
                return record
            else:
                await self._forget_originals(name, topic_id, record)
        raise Unavailable(f"topic {name}: its settings keep changing; try again")

    async def settle_limits(self, name: str, topic_id: Uuid) -> TopicRecord:
        """As `settle` for a topic whose retention is given back, but what others set is left: what
        becomes of that, the keeper decides (H14).
        """
        before: TopicRecord | None = None
        for _ in range(_MAX_PASSES):
            await self._settings.barrier(self._barrier_deadline_ms)
            if not is_taken_over(record := self._record(name, topic_id)):
                return await self.settle(name, topic_id, before)
            before = record
            await self._refuse_unless_led(name, topic_id)
            change = _changes_of_ours(record, await self._broker.topic_config(name))
            if change is None:
                return record
            await self._alter(name, change)
        raise Unavailable(f"topic {name}: its settings keep changing; try again")

    async def _remember_choice(self, name: str, record: TopicRecord) -> bool:
        """Write what others set on a taken-over topic into its originals; returns whether anything
        was.

        The configuration is read after leadership: a broker that knows that it leads also knows
        what was altered before its election, and each change of our own was waited for.
        """
        if not is_taken_over(record):
            return False
        topic = await self._refuse_unless_led(name, record.topic_id)
        originals = chosen_since(record, await self._broker.topic_config(name))
        if originals == record.originals:
            return False
        await self._settings.publish(
            replace(record, originals=originals), topic.partitions[0].leader_epoch
        )
        log.info("topic_retention_remembered", topic=name, originals=originals)
        return True

    def _record(self, name: str, topic_id: Uuid) -> TopicRecord:
        record = self._settings.view.topic(topic_id)
        if record is None:
            raise Unavailable(f"topic {name}: its settings vanished while they were applied")
        return record

    async def _refuse_unless_led(self, name: str, topic_id: Uuid) -> TopicDescription:
        topic = await self.led_topic(name)
        if topic.topic_id != topic_id:
            raise Unavailable(f"topic {name} was recreated meanwhile")
        return topic

    async def _alter(self, name: str, change: ConfigChange) -> None:
        await self._broker.alter_topic_config(
            name, set_values=change.set_values, unset=change.unset
        )
        log.info(
            "topic_config_altered",
            topic=name,
            set=dict(change.set_values),
            unset=list(change.unset),
        )
        await self._until_shown(name, change)

    async def _until_shown(self, name: str, change: ConfigChange) -> None:
        """The controller has accepted the change; our broker returns it a moment later."""
        deadline_ms = self._clock.monotonic_ms() + _SHOWN_WITHIN_MS
        while not _is_shown(change, await self._broker.topic_config(name)):
            if self._clock.monotonic_ms() >= deadline_ms:
                raise Unavailable(f"topic {name}: the altered configuration does not show yet")
            await self._clock.sleep_ms(_POLL_MS)

    async def _forget_originals(self, name: str, topic_id: Uuid, record: TopicRecord) -> None:
        topic = await self.led_topic(name)
        await self._settings.publish(
            replace(record, originals={}, given_back=None), topic.partitions[0].leader_epoch
        )


def _owed(record: TopicRecord, before: TopicRecord | None) -> TopicRecord:
    """With what an earlier record had, where another service has restored and forgotten it: a late
    change of ours is reverted by it.
    """
    if record.originals or before is None:
        return record
    return replace(record, originals=before.originals, given_back=before.given_back)


def _is_shown(change: ConfigChange, config: Config) -> bool:
    for name, value in change.set_values.items():
        found = config.get(name)
        if found is None or not found.is_topic_level or found.value != value:
            return False
    return not any(name in config and config[name].is_topic_level for name in change.unset)
