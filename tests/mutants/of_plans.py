"""Planted bugs in the plans that decide what a history is, what is swept and what freezes."""

from tests.mutants.edits import Edit, Target

HISTORY = Target(
    "rlm/plans/history.py",
    ("tests/rlm/plans/test_h08_history.py", "tests/rlm/plans/test_h04_history.py"),
)
UNKNOWN_EPOCHS = Target(
    "rlm/plans/history.py",
    ("tests/rlm/tasks/test_h06_trimmed_lineage.py", "tests/rlm/plans/test_h06_unknown_epochs.py"),
)
GAPS = Target("rlm/remote_log/snapshots.py", UNKNOWN_EPOCHS.tests)
PUBLISHER = Target("rlm/remote_log/snapshot_cache.py", UNKNOWN_EPOCHS.tests)
SWEEP = Target(
    "rlm/plans/sweep.py", ("tests/rlm/plans/test_h06_sweep.py", "tests/rlm/tasks/test_cleanup.py")
)
GUARDS = Target("rlm/plans/guards.py", ("tests/rlm/plans/test_guards.py",))
GATHERED = Target(
    "rlm/remote_log/snapshots.py",
    ("tests/rlm/tasks/test_trim.py", "tests/rlm/tasks/test_trim_guards.py"),
)
FREEZE = Target(
    "rlm/plans/freeze.py", ("tests/rlm/plans/test_h04_freeze.py", "tests/rlm/tasks/test_trim.py")
)
ACCEPTED_HOLES = Target("rlm/plans/coverage.py", ("tests/rlm/tasks/test_h12_deleted_again.py",))
AGAIN = Target("rlm/tasks/cleanup.py", ACCEPTED_HOLES.tests)
SUPERSEDED = Target(
    "rlm/plans/coverage.py",
    ("tests/rlm/plans/test_superseded.py", "tests/rlm/tasks/test_lost_segments.py"),
)

EDITS: tuple[Edit, ...] = (
    *UNKNOWN_EPOCHS.edits(
        (
            "H6: a lineage with a gap is published, and hides copies that are found again",
            "        if is_behind_gap and (one.epoch, two) not in neighbours:",
            "        if is_behind_gap and not neighbours and two.epoch < 0:",
        ),
        (
            "H6: what was published of a gap does not count",
            "        if is_behind_gap and (one.epoch, two) not in neighbours:",
            "        if is_behind_gap:",
        ),
        (
            "H6: a gap further up is published, and hides copies that are found again",
            "    for one, two in reversed(tuple(pairwise(lineage.entries))):",
            "    for one, two in pairwise(lineage.entries):",
        ),
        (
            "H8: what was published below a gap is given up",
            "    if known is not None and known.start_offset < unknown.start_offset:\n",
            "    if known is not None and known.start_offset < 0:\n",
        ),
        (
            "H4: readers read dead copies below a gap",
            "    return part if _reads_alike(ledger, record.lineage, part) else None",
            "    return part",
        ),
    ),
    *PUBLISHER.edits(
        (
            "H6: a snapshot publishes a lineage with a gap for readers",
            "            return self._known_part(snapshot, record, published) or record\n",
            "            return record\n",
        ),
        (
            "H6: a snapshot publishes a lineage with a gap as the broker may cut it",
            "            record = self._known_part(snapshot, record, published)\n",
            "",
        ),
    ),
    *GAPS.edits(
        (
            "H8: a copy that the log begins inside of does not count: no trim is done any more",
            "        log_end_offset=snapshot.log_end_offset,\n        remote_log_start_offset=",
            "        log_end_offset=snapshot.watermarks.log_start_offset,\n"
            "        remote_log_start_offset=",
        ),
    ),
    *HISTORY.edits(
        (
            "H4: readers know nothing of what was published",
            "    if published is None or latest is None:\n        return remote\n",
            "    if latest is None or latest >= 0:\n        return remote\n",
        ),
        (
            "H4: what segments show of later epochs is left out behind what was published",
            "return merge(older, Lineage(remote.entries[len(remote.up_to(latest).entries) :]))",
            "return older",
        ),
        (
            "H8: dead histories of higher epochs are taken in with the local one",
            "remote = ledger.remote_lineage_up_to(first.epoch)",
            "remote = ledger.remote_lineage",
        ),
        (
            "H8: what was published of the log's oldest epoch is not believed",
            "return merge(merge(remote, word.up_to(first.epoch)), local)",
            "return merge(remote, local)",
        ),
        (
            "H8: the history counts as settled although the published epochs are others",
            "    if leaders_lineage(ledger, published, left) != lineage:\n        return False\n",
            "",
        ),
        (
            "H8: the history counts as settled although an epoch fits in between",
            "two.epoch == one.epoch + 1\n",
            "two.epoch >= one.epoch + 1\n",
        ),
        (
            "H8: the epoch that begins with the bound is not looked at",
            "if two.start_offset <= bound",
            "if two.start_offset < bound",
        ),
        (
            "H8: a history of a frozen log is believed by another one",
            "is_before = latest is not None and latest < epoch and published.frozen is None",
            "is_before = latest is not None and latest < epoch",
        ),
        (
            "H8: a history published under a later epoch is believed by an older log",
            "is_before = latest is not None and latest < epoch and published.frozen is None",
            "is_before = latest is not None and published.frozen is None",
        ),
        (
            "H8: other histories that were published are lost with the next record",
            "        others=_as_many_as_fit(kept[1:]),\n",
            "        others=(),\n",
        ),
        (
            "the oldest epochs are published where there are too many",
            "Lineage(lineage.entries[-MOST_EPOCHS:])",
            "Lineage(lineage.entries[:MOST_EPOCHS])",
        ),
        (
            "other histories are bounded by nothing",
            "return tuple(others[: max(count, LEAST_OTHERS)])",
            "return tuple(others)",
        ),
        (
            "H6: a ledger with a problem takes a freeze away",
            "if ledger.newest_epoch > leader_epoch or not (trusted or frozen):",
            "if ledger.newest_epoch > leader_epoch:",
        ),
        (
            "H4: a leader of an older epoch tells readers what to believe",
            "if ledger.newest_epoch > leader_epoch or not (trusted or frozen):",
            "if not (trusted or frozen):",
        ),
        (
            "H4: readers never learn that a freeze is over",
            "is_freeze_known = is_frozen_published == (frozen is not None)",
            "is_freeze_known = is_frozen_published or frozen is None",
        ),
        (
            "H4: nothing is published as long as no freeze changes",
            "if is_freeze_known and _reads_alike(ledger, lineage, published):",
            "if is_freeze_known:",
        ),
        (
            "a history is published again with every snapshot though all was published",
            "if is_freeze_known and published is not None and published.lineage == record.lineage:",
            "if is_freeze_known and published is None:",
        ),
    ),
    *GUARDS.edits(
        (
            "H17: something is deleted before settings and ledger were read",
            "    if not guards.ready:\n",
            "    if guards.ready is None:\n",
        ),
        (
            "H6: something is deleted with a problem of the ledger",
            "    if guards.ledger_problem is not None:\n",
            "    if guards.ledger_problem == '':\n",
        ),
        (
            "G1: a freeze by command does not stop deletions",
            "    if guards.freeze_record is not None:\n",
            "    if guards.freeze_record == '':\n",
        ),
        (
            "H4: something of a frozen partition is deleted",
            "    if guards.frozen is not None:\n",
            "    if guards.frozen == '':\n",
        ),
    ),
    *GATHERED.edits(
        (
            "G1: a freeze by command is not gathered",
            "freeze_record=settings.view.stopped_by(snapshot.key.topic_id, operation),",
            "freeze_record=None,",
        ),
        (
            "H4: a frozen snapshot is not gathered",
            "        frozen=snapshot.frozen,\n",
            "        frozen=None,\n",
        ),
        (
            "H6: a problem of the settings is no reason to stop",
            "ledger.problem or settings.problem or ledger.ledger(key).deletion_problem",
            "ledger.problem or ledger.ledger(key).deletion_problem",
        ),
        (
            "G1: a recorded deletion of the partition is no reason to stop",
            "ledger.problem or settings.problem or ledger.ledger(key).deletion_problem",
            "ledger.problem or settings.problem",
        ),
        (
            "H6: a problem of the ledger is no reason to stop",
            "ledger.problem or settings.problem or ledger.ledger(key).deletion_problem",
            "settings.problem or ledger.ledger(key).deletion_problem",
        ),
        (
            "H17: something is deleted before the settings were read",
            "ready=ledger.is_ready and settings.is_ready,",
            "ready=ledger.is_ready,",
        ),
        (
            "H17: something is deleted before the ledger was read",
            "ready=ledger.is_ready and settings.is_ready,",
            "ready=settings.is_ready,",
        ),
    ),
    *SWEEP.edits(
        (
            "H3: disputed entries are swept",
            "        and not entry.disputed\n",
            "",
        ),
        (
            "H12: live attempts are swept",
            "        and entry.metadata.segment_id.id not in sweeper.live\n",
            "",
        ),
        (
            "H12: another service's attempt is swept before its grace is over",
            "now_ms - entry.timestamp_ms >= sweeper.grace_ms",
            "now_ms - entry.timestamp_ms >= 0",
        ),
        (
            "H6: a manifest that cannot be used is no manifest",
            "    if evidence.unreadable:\n",
            "    if evidence.unreadable and evidence.manifest is not None:\n",
        ),
        (
            "H6: an attempt is deleted in spite of its manifest",
            "if evidence.manifest is None:",
            "if evidence.manifest is None or metadata.state is not _DELETED:",
        ),
        (
            "H12: a manifest of another attempt is adopted",
            "if not _is_same_attempt(metadata, evidence.manifest):",
            "if False:",
        ),
        (
            "H12: a manifest of other offsets is adopted",
            "and (one.start_offset, one.end_offset) == (other.start_offset, other.end_offset)",
            "and one.start_offset == other.start_offset",
        ),
        (
            "H12: a manifest of another partition is adopted",
            "        and one.topic_id_partition.key == other.topic_id_partition.key\n",
            "",
        ),
        (
            "H3: a finished copy below the start is deleted, not only a deletion gone on with",
            "if has_ended and (is_deleting or is_broken):",
            "if has_ended:",
        ),
        (
            "H3: an attempt below the start is deleted though it is whole",
            "(is_deleting or is_broken)",
            "metadata.state is not _DELETED",
        ),
        (
            "H6: an attempt below the start that lacks an object stays for ever",
            "has_ended and (is_deleting or is_broken)",
            "has_ended and is_deleting",
        ),
        (
            "H3: a delete that somebody else began is gone on with though it did not end",
            "if has_ended and (is_deleting or is_broken):",
            "if is_deleting or (has_ended and is_broken):",
        ),
        (
            "H12: what a manifest without objects says it lost is deleted though nobody began to",
            "evidence.superseded and metadata.state is not _STARTED:",
            "evidence.superseded:",
        ),
        (
            "H12: a manifest that came after its deletion stays for ever",
            "evidence.superseded and metadata.state is not _STARTED:",
            "evidence.superseded and is_deleting:",
        ),
        (
            "H6: a manifest is adopted that would publish another state",
            "if manifest.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:",
            "if manifest.state is None:",
        ),
        (
            "H6: a manifest is adopted although its objects are gone",
            "if evidence.presence is not Presence.COMPLETE:",
            "if evidence.presence is None:",
        ),
    ),
    *FREEZE.edits(
        (
            "H4: remote data beyond the log's end freezes nothing",
            "if remote_next_offset > log_end_offset:",
            "if remote_next_offset > log_end_offset + 1_000_000:",
        ),
        (
            "H4: remote data that ends where the log does freezes the partition",
            "if remote_next_offset > log_end_offset:",
            "if remote_next_offset >= log_end_offset:",
        ),
        (
            "H8: one orphan more than allowed freezes nothing",
            "(len(orphans) > max_orphans or not usable)",
            "(len(orphans) > max_orphans + 1 or not usable)",
        ),
        (
            "H8: as many orphans as allowed freeze the partition",
            "(len(orphans) > max_orphans or not usable)",
            "(len(orphans) >= max_orphans or not usable)",
        ),
        (
            "H8: an emptied disk whose few segments are all orphans freezes nothing",
            "(len(orphans) > max_orphans or not usable)",
            "len(orphans) > max_orphans",
        ),
        (
            "H8: what newer segments cover counts as orphaned for ever",
            "        and not covered.holds(segment.start_offset, segment.next_offset)\n",
            "",
        ),
        (
            "H8: segments that only may lie outside the lineage count as orphans",
            "        and diverges(segment, lineage, accepted)\n",
            "",
        ),
        (
            "H4: an operator's word does not end a freeze",
            "if epoch is not None and epoch <= accepted.epoch:",
            "if epoch is not None and epoch < accepted.epoch:",
        ),
        (
            "H4: an operator's word covers the next epoch too",
            "if epoch is not None and epoch <= accepted.epoch:",
            "if epoch is not None and epoch <= accepted.epoch + 1:",
        ),
        (
            "H4: an operator's word covers all that comes after it",
            "return not (at >= accepted.end_offset and newest_epoch < accepted.epoch)",
            "return not at >= accepted.end_offset",
        ),
        (
            "H4: an operator's word does not reach the epoch that replaced the accepted one",
            "return not (at >= accepted.end_offset and newest_epoch < accepted.epoch)",
            "return True",
        ),
    ),
    *ACCEPTED_HOLES.edits(
        (
            "H15: a hole that nobody accepted replaces a copy that may come back",
            "if one.cause == NO_RECORDS or one.cause.startswith(ACCEPTED)",
            "if one",
        ),
    ),
    *AGAIN.edits(
        (
            "H3: it is checked by a record without sizes whether objects came back",
            "            if not await self._is_superseded(snapshot, found.metadata or metadata):",
            "            if not await self._is_superseded(snapshot, metadata):",
        ),
    ),
    *SUPERSEDED.edits(
        (
            "H3: a disputed copy makes good for a lost one",
            "        and not one.disputed\n",
            "",
        ),
        (
            "H11: a copy that is gone itself makes good for a lost one",
            "        if one.metadata.segment_id.id in seen\n",
            "",
        ),
        (
            "H11: a lost segment makes good for itself",
            "        if one.metadata.segment_id != segment.segment_id\n        and",
            "        if",
        ),
        (
            "H8: a segment of a dead history is taken out of the ledger",
            "    if usable_end(segment, lineage) != segment.next_offset:\n        return False\n",
            "",
        ),
        (
            "H15: a hole on record makes good for nothing",
            "next_offset=hole.end) for hole in holes]",
            "next_offset=hole.end) for hole in ()]",
        ),
        (
            "H2: what lies below the remote start must be made good for",
            "    start = max(segment.start_offset, remote_log_start_offset)\n",
            "    start = segment.start_offset\n",
        ),
        (
            "H15: the last offset of a lost segment is not made good for",
            "return Cover.of(ranges).holds(start, segment.next_offset)",
            "return Cover.of(ranges).holds(start, segment.end_offset)",
        ),
    ),
)
