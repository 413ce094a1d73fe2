"""H6, H10, H3: which leftovers are looked at, and what evidence decides."""

from dataclasses import replace

import pytest

from kip405.contracts import Presence
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.plans.sweep import (
    Adopt,
    Alarm,
    Decision,
    Delete,
    Evidence,
    SweepEntry,
    Sweeper,
    decide,
    leftovers,
)
from tests.builders.ledger import FINISHED, OTHER_WRITER, OUR_WRITER, metadata

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
NO_MANIFEST = Evidence(presence=Presence.MISSING, manifest=None)


def entry(
    state: RemoteLogSegmentState = STARTED,
    *,
    number: int = 1,
    node: int = 2,
    writer: Uuid = OTHER_WRITER,
    at_ms: int = 0,
    disputed: bool = False,
) -> SweepEntry:
    found = metadata(number, 100, 200, {0: 100}, state, broker_id=node)
    return SweepEntry(metadata=found, writer=writer, timestamp_ms=at_ms, disputed=disputed)


def is_leftover(one: SweepEntry, *, now_ms: int, live: frozenset[Uuid] = frozenset()) -> bool:
    sweeper = Sweeper(node_id=1, writer=OUR_WRITER, live=live, grace_ms=1_000)
    return bool(leftovers([one], sweeper, now_ms))


def decided(
    state: RemoteLogSegmentState, evidence: Evidence, *, has_ended: bool = False
) -> Decision:
    return decide(entry(state), evidence, has_ended=has_ended)


def manifest(presence: Presence = Presence.COMPLETE, *, number: int = 1) -> Evidence:
    return Evidence(presence=presence, manifest=metadata(number, 100, 200, {0: 100}, FINISHED))


def test_h06_other_nodes_attempts_wait_for_the_grace() -> None:
    assert not is_leftover(entry(at_ms=500), now_ms=1_499)
    assert is_leftover(entry(at_ms=500), now_ms=1_500)


def test_h06_an_earlier_process_of_this_node_is_gone_at_once() -> None:
    assert is_leftover(entry(node=1), now_ms=0)


def test_h06_our_own_attempt_is_no_leftover_while_it_lives() -> None:
    mine = entry(node=1, writer=OUR_WRITER)
    assert not is_leftover(mine, now_ms=9_999, live=frozenset({mine.metadata.segment_id.id}))
    assert is_leftover(mine, now_ms=0)


@pytest.mark.parametrize("one", [entry(FINISHED, node=1), entry(node=1, disputed=True)])
def test_h03_finished_and_disputed_entries_are_not_swept(one: SweepEntry) -> None:
    assert not is_leftover(one, now_ms=99_999)


def test_h06_without_manifest_a_broken_attempt_is_deleted() -> None:
    assert isinstance(decided(STARTED, NO_MANIFEST), Delete)
    assert isinstance(decided(DELETING, NO_MANIFEST), Delete)
    assert isinstance(decided(DELETED, NO_MANIFEST), Delete), "objects may have come after it"


@pytest.mark.parametrize("state", [STARTED, DELETING, DELETED])
def test_h06_with_manifest_and_objects_it_is_adopted_never_swept(
    state: RemoteLogSegmentState,
) -> None:
    evidence = manifest()
    assert decided(state, evidence) == Adopt(finished=metadata(1, 100, 200, {0: 100}, FINISHED))


@pytest.mark.parametrize("state", [STARTED, DELETING, DELETED])
@pytest.mark.parametrize("presence", [Presence.MISSING, Presence.DIFFERENT])
def test_h06_with_manifest_but_without_objects_it_is_left_with_an_alarm(
    state: RemoteLogSegmentState, presence: Presence
) -> None:
    assert isinstance(decided(state, manifest(presence)), Alarm)


@pytest.mark.parametrize("presence", [Presence.MISSING, Presence.DIFFERENT])
def test_h06_what_has_ended_is_deleted_without_its_objects(presence: Presence) -> None:
    """Nobody misses anything of it, and an alarm would stay for ever."""
    for state in (STARTED, DELETING, DELETED):
        assert isinstance(decided(state, manifest(presence), has_ended=True), Delete)


def test_h12_a_deletion_goes_on_without_objects_once_other_copies_have_their_records() -> None:
    found = replace(manifest(Presence.MISSING), superseded=True)
    assert isinstance(decided(DELETING, found), Delete)
    assert isinstance(decided(DELETED, found), Delete)
    assert isinstance(decided(STARTED, found), Alarm), "nobody has decided to delete it"


def test_h03_somebody_elses_deletion_goes_on_only_below_the_remote_start() -> None:
    assert isinstance(decided(DELETING, manifest(), has_ended=True), Delete)
    assert isinstance(decided(DELETING, manifest()), Adopt)


def test_h06_a_manifest_that_cannot_be_used_is_an_alarm() -> None:
    unreadable = Evidence(presence=Presence.MISSING, manifest=None, unreadable="torn")
    assert isinstance(decided(STARTED, unreadable), Alarm)
    assert isinstance(decided(STARTED, manifest(number=2)), Alarm)


@pytest.mark.parametrize("state", [STARTED, DELETING, DELETED])
def test_h06_a_manifest_that_would_publish_no_finished_is_an_alarm(
    state: RemoteLogSegmentState,
) -> None:
    strange = Evidence(presence=Presence.COMPLETE, manifest=metadata(1, 100, 200, {0: 100}, state))
    assert isinstance(decided(STARTED, strange), Alarm)


@pytest.mark.parametrize(("start", "end"), [(101, 200), (100, 199), (100, 201)])
def test_h12_a_manifest_of_other_offsets_is_an_alarm(start: int, end: int) -> None:
    other = Evidence(
        presence=Presence.COMPLETE, manifest=metadata(1, start, end, {0: 100}, FINISHED)
    )
    assert isinstance(decided(STARTED, other), Alarm)


def test_h12_a_manifest_of_another_partition_is_an_alarm() -> None:
    found = metadata(1, 100, 200, {0: 100}, FINISHED)
    partition_id = replace(found.topic_id_partition, partition=5)
    other = replace(found, segment_id=replace(found.segment_id, topic_id_partition=partition_id))
    evidence = Evidence(presence=Presence.COMPLETE, manifest=other)
    assert isinstance(decided(STARTED, evidence), Alarm)


@pytest.mark.parametrize("state", [STARTED, DELETED])
def test_h03_only_a_deletion_is_gone_on_with_below_the_remote_start(
    state: RemoteLogSegmentState,
) -> None:
    """What is whole is adopted first: expiry ends it."""
    assert isinstance(decided(state, manifest(), has_ended=True), Adopt)
