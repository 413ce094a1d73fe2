"""Ledger and settings of an attached reader: what the manifests of the stores show, in memory.

No topic of Kafka is read, so nothing is published either, and a barrier has nothing to wait for:
what was read last is all there is. Readers of the remote tier take both through the same Protocols
as those that follow Kafka (remote_only.py, history.py). This module must not know stores.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn

from kip405.errors import Invalid, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.plans.attachment import Doubt, PartitionPlan
from rlmm.ledger import PartitionLedger
from rlmm.records import NO_PREVIOUS, LedgerKey, LedgerRecord, RecordHeaders
from rlmm.replay import LedgerState
from rlmm.settings_codec import encode_settings_record
from rlmm.settings_records import NO_LEADER_EPOCH, SettingsRecord, Stamp
from rlmm.settings_view import SettingsView

NOBODY = Uuid(bytes(16))
"""The writer of what nobody has written."""
_IDS_AT_ONCE = 500
_NO_PLAN = PartitionPlan(remote_log_start_offset=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedState:
    """All that is known at one time."""

    ledgers: Mapping[PartitionKey, PartitionLedger] = field(default_factory=dict)
    plans: Mapping[PartitionKey, PartitionPlan] = field(default_factory=dict)
    view: SettingsView = field(default_factory=SettingsView)


class AttachedLog:
    """The state that readers get; replaced as a whole. `problem`: why there is none yet, or why it
    is older than it should be.
    """

    def __init__(self) -> None:
        self.state = AttachedState()
        self.problem: str | None = "the manifests are not read yet"
        self._read = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether the manifests were read once."""
        return self._read.is_set()

    @property
    def topic_ids(self) -> Mapping[str, Uuid]:
        """Of the two topics of the product, which are not there."""
        return {}

    @property
    def loss(self) -> str | None:
        """A store loses no records; what it lacks is a problem of its partition."""
        return None

    def replace(self, state: AttachedState) -> None:
        """All manifests were read."""
        self.state = state
        self.problem = None
        self._read.set()

    async def wait_ready(self) -> None:
        await self._read.wait()

    def doubts(self, key: PartitionKey) -> tuple[Doubt, ...]:
        """The offsets of a partition that are not served."""
        return self.state.plans.get(key, _NO_PLAN).doubts

    def refuse_unread(self) -> None:
        """Unavailable until the manifests were read."""
        if not self.is_ready:
            raise Unavailable(self.problem or "the manifests are not read yet")


class AttachedSettings:
    """The settings as far as they are known; nothing is ever written."""

    def __init__(self, log: AttachedLog) -> None:
        self._log = log

    @property
    def is_ready(self) -> bool:
        return self._log.is_ready

    @property
    def view(self) -> SettingsView:
        return self._log.state.view

    @property
    def problem(self) -> str | None:
        """None: the ledger says what is wrong with both."""
        return None

    def damage_of_start(self, partition: PartitionKey) -> str | None:
        """What a start may be unknown by is in the plan of the partition."""
        return None

    async def barrier(self, deadline_ms: int) -> None:
        self._log.refuse_unread()

    async def publish(
        self, record: SettingsRecord, leader_epoch: int = -1, seen: int | None = None
    ) -> None:
        _refuse_writing()

    async def tombstone(self, key: str, leader_epoch: int = -1, seen: int | None = None) -> None:
        _refuse_writing()


class AttachedLedger:
    """The segments that have a manifest, all of them finished."""

    def __init__(self, log: AttachedLog) -> None:
        self._log = log

    @property
    def is_ready(self) -> bool:
        return self._log.is_ready

    @property
    def problem(self) -> str | None:
        return self._log.problem

    @property
    def damage(self) -> str | None:
        """Manifests that cannot be used are doubts of their partitions."""
        return None

    def ledger(self, key: PartitionKey) -> PartitionLedger:
        return self._log.state.ledgers.get(key) or PartitionLedger.empty(key)

    def partitions(self) -> tuple[PartitionKey, ...]:
        return tuple(self._log.state.ledgers)

    def finished_ids(self) -> Iterator[frozenset[bytes]]:
        """The raw ids of all segments, a few hundred at a time."""
        for ledger in tuple(self._log.state.ledgers.values()):
            ids = iter(ledger.entries)
            while part := frozenset(one.raw for one in islice(ids, _IDS_AT_ONCE)):
                yield part

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None:
        self._log.refuse_unread()


def _refuse_writing() -> NoReturn:
    raise Invalid("an attached reader writes nothing")


def ledger_of_segments(
    key: PartitionKey,
    segments: Sequence[RemoteLogSegmentMetadata],
    previous: PartitionLedger | None = None,
) -> PartitionLedger:
    """The ledger of a partition in which these segments are finished; its version is newer than the
    previous one's.
    """
    state = LedgerState(previous.version if previous else 0)
    state.go_live(absence_is_known=False)  # what lies in a store needs no earlier record
    epochs = (entry.epoch for one in segments for entry in one.segment_leader_epochs)
    headers = RecordHeaders(
        leader_epoch=max(epochs, default=NO_LEADER_EPOCH),
        expected_previous=NO_PREVIOUS,
        writer=NOBODY,
    )
    for offset, metadata in enumerate(segments):
        state.apply(
            LedgerRecord(
                key=LedgerKey.of(metadata.segment_id),
                metadata=metadata,
                headers=headers,
                offset=offset,
                timestamp_ms=metadata.event_timestamp_ms,
            )
        )
    found = state.partitions.get(key)
    return PartitionLedger.empty(key) if found is None else PartitionLedger.of(key, found)


def view_of_records(records: Iterable[SettingsRecord], version: int) -> SettingsView:
    """A view of the records, the last one of a key counts; its version is newer than the given
    one.
    """
    view = SettingsView(version + 1)
    stamp = Stamp(node_id=-1, leader_epoch=NO_LEADER_EPOCH, writer=NOBODY, time_ms=0)
    for offset, record in enumerate(records):
        key, value = encode_settings_record(record, stamp)
        view.apply(key=key, value=value, offset=offset)
    return view
