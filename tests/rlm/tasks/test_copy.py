"""The copy task end to end on real segment files (G2, G3) and the hazards around an attempt."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.checkpoints import parse_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import Corrupt, Fenced, Invalid, Unavailable
from kip405.ids import Uuid
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    IndexesObject,
    decode_aborted,
)
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.tasks.copy_request import CopyRequest
from rlmm.ledger_values import encode_value
from rlmm.publisher import OutcomeUnknown
from tests.builders.ledger import OTHER_WRITER, OUR_WRITER, PARTITION, metadata
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def finished(rig: Rig) -> list[RemoteLogSegmentMetadata]:
    return [entry.metadata for entry in rig.ledger.view.in_state(FINISHED)]


def refuse_copies(operation: str) -> None:
    if operation == "copy":
        raise Unavailable("no space left")


async def test_closed_segments_are_copied_in_order_byte_for_byte(rig: Rig) -> None:
    rig.write_log(0, 100, 250, end=300)
    await rig.copy.run(rig.led)
    states = rig.ledger.states()
    assert (states.count(STARTED), states.count(FINISHED), len(states)) == (2, 2, 4)
    assert [(one.start_offset, one.next_offset) for one in finished(rig)] == [(0, 100), (100, 250)]
    logs = b"".join(rig.store.objects[name] for name in rig.names(".log"))
    assert rig.broker.log.startswith(logs)
    assert len(rig.names(".indexes")) == len(rig.names(".rsm-manifest")) == 2
    status = rig.copy.statuses[PARTITION.key]
    assert (status.copied_next_offset, status.pending_segments) == (250, 0)


async def test_what_is_copied_is_not_copied_again(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    await rig.copy.run(rig.led)
    await rig.copy.run(rig.led)
    assert rig.ledger.states() == [STARTED, FINISHED]
    assert rig.copy.statuses[PARTITION.key].reason == "all closed segments are remote"


async def test_h38_what_is_behind_has_an_age_and_a_copy_starts_it_again(rig: Rig) -> None:
    rig.write_log(0, 100, 250, end=300)
    began_ms = rig.clock.now
    rig.store.before = refuse_copies
    for _ in range(2):
        with pytest.raises(Unavailable):
            await rig.copy.run(rig.led)
        rig.clock.advance(30_000)
    status = rig.copy.statuses[PARTITION.key]
    assert (status.lag_segments, status.reason) == (2, "closed segments are to be copied")
    assert (status.behind_since_ms, status.measured_at_ms) == (began_ms, began_ms + 30_000)
    rig.store.before = lambda _: None
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
    status, progress = rig.copy.statuses[PARTITION.key], rig.copy.progress({PARTITION.key})
    assert (progress.segments_left, progress.bytes_left) == (1, status.pending_bytes)
    assert (status.lag_segments, status.behind_since_ms) == (1, rig.clock.now)
    await rig.copy.run(rig.led)
    status = rig.copy.statuses[PARTITION.key]
    assert (status.lag_segments, status.lag_bytes, status.behind_since_ms) == (0, 0, None)
    assert status.reason == "all closed segments are remote"


async def test_h38_under_a_new_leader_epoch_the_age_starts_again(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    rig.store.before = refuse_copies
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.clock.advance(30_000)
    rig.broker.elect(1, 1)
    rig.disk.epochs({0: 0, 1: 150})
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    assert rig.copy.statuses[PARTITION.key].behind_since_ms == rig.clock.now


async def test_the_metadata_and_the_indexes_object_say_what_is_stored(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    await rig.copy.run(rig.led)
    (found,) = finished(rig)
    log = rig.store.objects[rig.names(".log")[0]]
    indexes = rig.store.objects[rig.names(".indexes")[0]]
    custom = found.custom()
    assert (custom.store_id, custom.plugin) == (STORE_ID, b"plugin")
    assert (custom.log_crc32c, custom.indexes_crc32c) == (crc32c(log), crc32c(indexes))
    assert custom.indexes_size_bytes == len(indexes)
    assert found.segment_size_bytes == len(log)
    assert found.max_timestamp_ms == 1_099
    assert found.segment_leader_epochs == (EpochEntry(epoch=0, start_offset=0),)
    assert found.txn_index_empty
    parsed = IndexesObject.parse(indexes, check_sections=True)
    for index_type, file in (
        (IndexType.OFFSET, rig.disk.file(0, ".index")),
        (IndexType.TIMESTAMP, rig.disk.file(0, ".timeindex")),
        (IndexType.PRODUCER_SNAPSHOT, rig.disk.file(100, ".snapshot")),
    ):
        assert bytes(parsed.section(index_type) or b"") == file.read_bytes()
    assert parsed.section(IndexType.TRANSACTION) is None
    checksums = parsed.section(IndexType.CHUNK_CHECKSUMS)
    assert checksums is not None
    ChunkChecksums.decode(checksums, len(log)).check(0, log)


async def test_the_manifest_carries_exactly_what_finished_publishes(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    await rig.copy.run(rig.led)
    manifest = json.loads(rig.store.objects[rig.names(".rsm-manifest")[0]])
    (found,) = finished(rig)
    assert base64.b64decode(manifest["segment_metadata"]) == encode_value(found)
    assert [one["name"] for one in manifest["objects"]] == rig.names(".log") + rig.names(".indexes")


async def test_started_names_the_store_before_there_are_objects(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    seen: list[RemoteLogSegmentMetadata] = []

    def note(published: RemoteLogSegmentMetadata) -> None:
        assert published.state is FINISHED or not rig.store.objects
        seen.append(published)

    rig.ledger.before_publish = note
    await rig.copy.run(rig.led)
    assert seen[0].custom().store_id == STORE_ID
    assert (seen[0].custom().log_crc32c, seen[0].max_timestamp_ms) == (0, 1_099)


async def test_h02_the_remote_start_is_written_before_the_first_copy(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    rig.broker.log_start_offset = 40
    await rig.copy.run(rig.led)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 40
    rig.broker.log_start_offset = 90
    await rig.copy.run(rig.led)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 40


async def test_h09_abort_whose_marker_lies_in_a_later_segment_is_stored(rig: Rig) -> None:
    straddling = AbortedTransaction(producer_id=9, first_offset=20, last_offset=210)
    own = AbortedTransaction(producer_id=8, first_offset=10, last_offset=50)
    later = AbortedTransaction(producer_id=7, first_offset=120, last_offset=130)
    rig.disk.segment(0, 100, aborted=[(own, 20)])
    rig.disk.segment(100, 200, aborted=[(later, 20)])
    rig.disk.segment(200, 300, aborted=[(straddling, 210)])
    rig.disk.active(300, 310)
    rig.broker.ends_at(310)
    rig.log_dir.recovery_point(PARTITION.topic, 0, 310)
    await rig.copy.run(rig.led)
    first = rig.store.objects[rig.names(".indexes")[0]]
    section = IndexesObject.parse(first).section(IndexType.ABORTED_TRANSACTIONS)
    assert section is not None
    assert set(decode_aborted(section)) == {own, straddling}
    assert not finished(rig)[0].txn_index_empty


async def test_h13_batches_of_another_history_are_not_copied(rig: Rig) -> None:
    rig.write_log(0, 100, end=150, epoch=3)
    with pytest.raises(Corrupt, match="leader epochs disagree"):
        await rig.copy.run(rig.led)
    assert not rig.ledger.log


async def test_h13_a_damaged_batch_is_not_copied(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    path = rig.disk.file(0, ".log")
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(Corrupt, match=r"00000000000000000000\.log"):
        await rig.copy.run(rig.led)
    assert not rig.store.objects


async def test_h13_a_file_that_changed_under_the_copy_is_abandoned(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    path = rig.disk.file(0, ".log")

    def replace_file(operation: str) -> None:
        if operation == "copied":
            data = path.read_bytes()
            path.with_suffix(".new").write_bytes(data)
            path.with_suffix(".new").rename(path)

    rig.store.before = replace_file
    with pytest.raises(Fenced, match="changed while it was copied"):
        await rig.copy.run(rig.led)
    assert rig.ledger.states() == [STARTED]
    assert not rig.names(".rsm-manifest")


async def test_h13_leadership_lost_under_the_copy_ends_it_before_the_manifest(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    led = rig.led

    def lose(operation: str) -> None:
        if operation == "copied":
            rig.broker.elect(2, 1)

    rig.store.before = lose
    with pytest.raises(Fenced, match="led by 2 under epoch 1"):
        await rig.copy.run(led)
    assert rig.ledger.states() == [STARTED]
    assert not rig.names(".rsm-manifest")


@pytest.mark.parametrize("writer", [OTHER_WRITER, OUR_WRITER])
async def test_h03_an_attempt_that_was_swept_meanwhile_gets_no_manifest(
    rig: Rig, writer: Uuid
) -> None:
    rig.write_log(0, 100, end=150)

    def sweep(operation: str) -> None:
        if operation == "copied":
            (entry,) = rig.ledger.view.entries.values()
            deleting = entry.metadata.in_state(DELETING, event_timestamp_ms=0, broker_id=2)
            rig.ledger.write(deleting, previous=0, writer=writer)

    rig.store.before = sweep
    with pytest.raises(Fenced, match="another task or service ended the attempt"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h13_the_topic_on_disk_must_be_the_brokers(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    (rig.disk.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {Uuid(bytes(16))}\n")
    with pytest.raises(Invalid, match="on disk has topic id"):
        await rig.copy.run(rig.led)


async def test_h13_an_epoch_file_older_than_the_leadership_is_waited_for(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    rig.broker.elect(1, 4)
    with pytest.raises(Unavailable, match="ends with epoch 0, leadership is of epoch 4"):
        await rig.copy.run(rig.led)


async def test_h35_cleanup_policy_is_read_again_before_each_copy(rig: Rig) -> None:
    """Four copies had begun when it changed."""
    rig.write_log(0, 100, 200, 300, 400, 500, end=550)

    def change(published: RemoteLogSegmentMetadata) -> None:
        rig.broker.config["cleanup.policy"] = "compact,delete"

    rig.ledger.after_publish = change
    with pytest.raises(Fenced, match=r"cleanup\.policy"):
        await rig.copy.run(rig.led)
    starts = [one.start_offset for one in finished(rig)]
    assert 0 in starts
    assert starts == [0, 100, 200, 300][: len(starts)]


async def test_h35_one_replica_waits_for_the_recovery_point(rig: Rig) -> None:
    rig.write_log(0, 100, 200, end=250)
    rig.log_dir.recovery_point(PARTITION.topic, 0, 199)
    await rig.copy.run(rig.led)
    assert [one.next_offset for one in finished(rig)] == [100]
    assert rig.copy.statuses[PARTITION.key].reason == "waiting for the recovery point"


async def test_h04_a_frozen_partition_is_not_copied(rig: Rig) -> None:
    rig.remote_start(0)
    rig.ledger.copied(metadata(77, 0, 5_000, {0: 0}))
    rig.write_log(0, 100, end=150)
    await rig.copy.run(rig.led)
    assert rig.ledger.states() == [STARTED, FINISHED]
    assert "beyond the log's end 150" in (rig.copy.statuses[PARTITION.key].frozen or "")


async def test_h04_after_an_unclean_election_copying_goes_on_from_the_new_epoch(rig: Rig) -> None:
    rig.remote_start(0)
    rig.ledger.copied(metadata(77, 0, 100, {0: 0}), metadata(78, 100, 200, {0: 100}))
    rig.disk.segment(0, 100)
    rig.disk.log(100, 150)
    rig.broker.elect(1, 2)
    rig.disk.epochs({0: 0, 2: 150})
    data = rig.disk.file(100, ".log").read_bytes()
    new = rig.disk.segment(150, 300, epoch=2)
    rig.disk.file(150, ".snapshot").write_bytes(b"x")
    rig.disk.active(300, 310, epoch=2)
    assert data
    assert new
    rig.broker.ends_at(310)
    rig.log_dir.recovery_point(PARTITION.topic, 0, 310)
    await rig.copy.run(rig.led)
    assert [(one.start_offset, one.next_offset) for one in finished(rig)] == [
        (0, 100),
        (100, 200),
        (150, 300),
    ]


async def test_h10_unknown_outcome_of_finished_is_neither_deleted_nor_retried(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)

    def lose_ack(published: RemoteLogSegmentMetadata) -> None:
        if published.state is FINISHED:
            raise OutcomeUnknown("no word within 1 ms")

    rig.ledger.after_publish = lose_ack
    with pytest.raises(OutcomeUnknown):
        await rig.copy.run(rig.led)
    assert len(rig.store.objects) == 3
    await rig.copy.run(rig.led)
    assert rig.ledger.states() == [STARTED, FINISHED]


async def test_h12_a_copy_beyond_its_deadline_gets_no_manifest(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)

    def take_long(operation: str) -> None:
        if operation == "copied":
            rig.clock.advance(60_000)

    rig.store.before = take_long
    with pytest.raises(Unavailable, match=r"copy\.deadline\.ms"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_a_log_start_inside_the_first_segment_does_not_hinder_its_copy(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    rig.disk.epochs({0: 40})
    rig.broker.log_start_offset = 40
    await rig.copy.run(rig.led)
    assert [(one.start_offset, one.next_offset) for one in finished(rig)] == [(0, 100)]
    section = IndexesObject.parse(rig.store.objects[rig.names(".indexes")[0]]).section(
        IndexType.LEADER_EPOCH
    )
    assert section is not None
    assert parse_leader_epochs(bytes(section)).latest_epoch == 0


async def test_h11_a_copy_into_another_store_is_never_finished(rig: Rig) -> None:
    """The plugin came back on another store during a long run."""
    rig.write_log(0, 100, end=150)
    ours = rig.store.identity
    assert ours is not None

    def swap(operation: str) -> None:
        rig.store.identity = replace(ours, store_id=OTHER_WRITER)

    rig.store.before = swap
    with pytest.raises(Fenced, match="the plugin serves store"):
        await rig.copy.run(rig.led)
    assert rig.ledger.states() == [STARTED]
    assert rig.names(".rsm-manifest") == []


async def test_h17_an_attempt_that_was_swept_unseen_gets_no_manifest(rig: Rig) -> None:
    """Our view of the ledger is behind: only the barrier shows that the attempt was ended."""
    rig.write_log(0, 100, end=150)

    def sweep(operation: str) -> None:
        if operation == "copied":
            rig.ledger.lags = True
            (entry,) = rig.ledger.view.entries.values()
            deleting = entry.metadata.in_state(DELETING, event_timestamp_ms=0, broker_id=2)
            rig.ledger.write(deleting, previous=0, writer=OTHER_WRITER)

    rig.store.before = sweep
    with pytest.raises(Fenced, match="another task or service ended the attempt"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h17_an_attempt_that_cannot_pass_a_barrier_gets_no_manifest(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)

    def away() -> None:
        raise Unavailable("barrier: nobody answers")

    def cut_off(operation: str) -> None:
        rig.ledger.on_barrier = away

    rig.store.before = cut_off
    with pytest.raises(Unavailable, match="nobody answers"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h13_leading_again_under_a_newer_epoch_ends_the_copy(rig: Rig) -> None:
    """Elected again meanwhile: another leader may have begun another history in between."""
    rig.write_log(0, 100, end=150)
    led = rig.led

    def lead_again(operation: str) -> None:
        if operation == "copied":
            rig.broker.elect(1, 2)

    rig.store.before = lead_again
    with pytest.raises(Fenced, match="led by 1 under epoch 2"):
        await rig.copy.run(led)
    assert not rig.names(".rsm-manifest")


async def test_h13_a_topic_recreated_under_its_name_ends_the_copy(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)

    def recreate(operation: str) -> None:
        if operation == "copied":
            rig.broker.topic_id = Uuid(b"\x77" * 16)

    rig.store.before = recreate
    with pytest.raises(Fenced, match="recreated"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h13_leadership_lost_while_a_file_is_read_leaves_no_record(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    led = rig.led

    def lose(question: str) -> None:
        if question == "log end":  # the snapshot's last
            rig.broker.elect(2, 1)

    rig.broker.after_answer = lose
    with pytest.raises(Fenced, match="led by 2 under epoch 1"):
        await rig.copy.run(led)
    assert not rig.ledger.log


async def test_h06_a_manifest_that_lands_after_its_sweep_brings_no_segment_back(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)
    rig.store.delays_manifests = True
    with pytest.raises(Unavailable, match="no answer"):
        await rig.copy.run(rig.led)
    rig.store.delays_manifests = False
    await rig.cleanup.run(rig.led)
    assert not rig.store.objects
    rig.store.land()
    await rig.cleanup.run(rig.led)
    assert finished(rig) == []
    await rig.copy.run(rig.led)
    assert [(one.start_offset, one.next_offset) for one in finished(rig)] == [(0, 100)]


async def test_h10_a_finished_that_lands_late_counts_once(rig: Rig) -> None:
    rig.write_log(0, 100, end=150)

    def lose_finished(published: RemoteLogSegmentMetadata) -> None:
        rig.ledger.loses_acks = published.state is FINISHED

    rig.ledger.before_publish = lose_finished
    with pytest.raises(OutcomeUnknown):
        await rig.copy.run(rig.led)
    rig.ledger.before_publish = lambda _: None
    rig.ledger.loses_acks = False
    await rig.cleanup.run(rig.led)
    rig.ledger.land()
    await rig.cleanup.run(rig.led)
    await rig.copy.run(rig.led)
    assert [(one.start_offset, one.next_offset) for one in finished(rig)] == [(0, 100)]
    assert len(rig.store.objects) == 3


async def test_a_copy_leaves_the_page_cache_as_it_found_it(rig: Rig) -> None:
    rig.write_log(0, 100, 200, end=250)
    rig.page_cache.cached = {100}
    await rig.copy.run(rig.led)
    assert rig.page_cache.dropped == [0]
