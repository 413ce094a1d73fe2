"""Planted bugs in what protects a remote log start that was lost or cannot be read (H1, H2)."""

from tests.mutants.edits import Edit, Target

_LOST = "tests/rlm/tasks/test_h02_lost_start.py"
VIEW = Target("rlmm/settings_view.py", ("tests/rlmm/test_settings_view.py", _LOST))
FIRST = Target("rlm/remote_log/log_starts.py", (_LOST, "tests/rlm/topics/test_h02_lost_starts.py"))
LOST_START = Target("rlm/topics/partition_records.py", (_LOST,))
ENABLING = Target("rlm/topics/partition_records.py", ("tests/rlm/topics/test_h02_lost_starts.py",))
TIER = Target("rlm/remote_log/leader_view.py", ("tests/rlm/test_local_tier.py",))

EDITS: tuple[Edit, ...] = (
    *VIEW.edits(
        (
            "H2: a record that cannot be read is written over",
            "        unread = None if isinstance(record, _HEARTBEATS) else "
            "self._unread(record.key)\n",
            "        unread = None\n",
        ),
        (
            "a heartbeat of a later version stops those of this one",
            "None if isinstance(record, _HEARTBEATS) else self._unread(record.key)",
            "self._unread(record.key)",
        ),
        (
            "H2: a record that cannot be read is removed",
            "        unread = self._unread(key)\n",
            "        unread = None\n",
        ),
    ),
    *TIER.edits(
        (
            "H2: a lost start leads readers past what was trimmed",
            "(snapshot.frozen is not None or is_start_lost)",
            "snapshot.frozen is not None",
        ),
    ),
    *FIRST.edits(
        (
            "H1: our own trim becomes the first start though there may have been another one",
            "    if damage is not None:\n",
            "    if damage is ...:\n",
        ),
        (
            "H10: a copy that arrives after its remote log has ended keeps the topic disabled",
            "(RemoteLogSegmentState.COPY_SEGMENT_FINISHED) if is_known else ()",
            "(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)",
        ),
        (
            "H1: our own trim becomes the first start of a partition with remote segments",
            "    if copied:\n",
            "    if copied and log_start_offset < 0:\n",
        ),
    ),
    *LOST_START.edits(
        (
            "H1: a lost start is set where our own trim has put the broker's",
            "remote_log_start_offset=min(first, log_start_offset),",
            "remote_log_start_offset=log_start_offset,",
        ),
        (
            "H2: a lost start is set above what the broker has",
            "remote_log_start_offset=min(first, log_start_offset),",
            "remote_log_start_offset=first,",
        ),
        (
            "H2: a lost start is set though the settings have a problem",
            "        if problem is not None:\n",
            "        if problem is ...:\n",
        ),
    ),
    *ENABLING.edits(
        (
            "no topic is enabled until the topics of the service were verified again",
            "damage=self._ledger.damage or self._settings.damage,",
            "damage=self._ledger.problem or self._settings.problem,",
        ),
    ),
)
