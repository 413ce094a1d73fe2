"""Planted bugs in what protects a remote log start that was lost or cannot be read (H1, H2)."""

from tests.mutants.edits import Edit, Target

_LOST = "tests/rlm/tasks/test_h02_lost_start.py"
VIEW = Target(
    "rlmm/settings_view.py",
    ("tests/rlmm/test_settings_view.py", "tests/rlmm/test_settings.py", _LOST),
)
MANAGER = Target("rlmm/manager.py", ("tests/rlmm/test_manager.py",))
FIRST = Target("rlm/remote_log/log_starts.py", (_LOST, "tests/rlm/topics/test_h02_lost_starts.py"))
LOST_START = Target("rlm/topics/partition_records.py", (_LOST,))
ENABLING = Target("rlm/topics/partition_records.py", ("tests/rlm/topics/test_h02_lost_starts.py",))
VERBS = Target("rlm/topics/verbs.py", ("tests/rlm/topics/test_h02_lost_starts.py",))
API = Target("rlm/api/messages.py", ("tests/rlm/cli/test_deletions.py",))
EMPTY = Target("rlm/remote_log/remote_only.py", ("tests/rlm/api/test_remote_losses.py",))
READER = Target("rlm/remote_log/remote_state.py", ("tests/rlm/api/test_remote_only.py",))
TIER = Target("rlm/remote_log/leader_view.py", ("tests/rlm/test_local_tier.py",))

EDITS: tuple[Edit, ...] = (
    *EMPTY.edits(
        (
            "H17: a partition is positively empty for a reader that follows no ledger",
            "            if not (is_fresh or found.has_records):\n",
            "            if False:\n",
        ),
    ),
    *MANAGER.edits(
        (
            "one record of the ledger that cannot be read stops every first start",
            "in self._unreadable.items() if at == own)",
            "in self._unreadable.items() if at >= 0)",
        ),
        (
            "H6: a start is made up though the ledger may have lost records",
            "        return self._log.damage or next(unread, None)\n",
            "        return next(unread, None)\n",
        ),
    ),
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
            "one record that cannot be read, anywhere, stops every first start",
            "for key, why in self._problems.items() if key in keys or not _is_text(key))",
            "for key, why in self._problems.items())",
        ),
        (
            "H2: a start is made up where the key of its record may be damaged",
            "if key in keys or not _is_text(key))",
            "if key in keys)",
        ),
        (
            "H1: a trim or a topic that cannot be read is no sign of a start",
            "if key in keys or not _is_text(key))",
            'if key == f"start/{partition}".encode() or not _is_text(key))',
        ),
        (
            "H3: a record that cannot be read keeps all others from being asserted, and repaired",
            "(key for key in self._overruled if self._unread(key) is None)",
            "(key for key in self._overruled)",
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
        (
            "H2: readers are led past what was trimmed where the ledger is lost too",
            "return sign_of_start(self._settings.view, self._ledger.ledger(key)) is not None",
            "return self._ledger.ledger(key).finished_total.segments > 0",
        ),
    ),
    *READER.edits(
        (
            "H2: a reader without a broker reads what has ended where the start is lost",
            "        if self.written_start is None:\n",
            "        if self.written_start is ...:\n",
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
            "if found and remains is not Remains.END:",
            "if found:",
        ),
        (
            "H1: a topic whose settings were lost begins at our own trim",
            "if found and remains is not Remains.END:",
            "if found and remains is ...:",
        ),
        (
            "H1: what an operator keeps lies below the start",
            "        return min(one.metadata.start_offset for one in found)\n    sign",
            "        return log_start_offset\n    sign",
        ),
        (
            "H1: a remote log ends of which settings are left",
            "    sign = _sign_in_settings(view, ledger)\n    if sign is not None:\n",
            "    sign = _sign_in_settings(view, ledger)\n    if sign is ...:\n",
        ),
        (
            "H15: holes on record are no sign of a start",
            'return "a record of holes" if view.holes(ledger.key) else None',
            "return None",
        ),
        (
            "H1: our own trim on record is no sign of a start",
            "    if trim is not None:\n",
            "    if trim is ...:\n",
        ),
        (
            "H6: a topic is enabled while its deletion appears",
            "    if ledger.deletion is not None:\n",
            "    if ledger.deletion is ...:\n",
        ),
        (
            "H6: an interrupted copy is no sign of a start",
            "    if ledger.entries:\n",
            "    if ledger.finished_total.segments:\n",
        ),
        (
            "H6: an attempt that has its manifest is no leftover of a lost topic",
            "and (one.disputed or one.state is not _GONE)",
            "and one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED",
        ),
        (
            "what was deleted keeps a topic disabled",
            "and (one.disputed or one.state is not _GONE)",
            "",
        ),
        (
            "what the broker has, too, keeps a topic disabled",
            "if one.metadata.start_offset < log_start_offset and",
            "if one.metadata.start_offset <= log_start_offset and",
        ),
        (
            "H1: our own trim becomes the first start of a partition that had one",
            "    if sign is not None:\n        raise Unavailable(\n"
            '            f"{partition} has {sign} and no',
            "    if sign is ...:\n        raise Unavailable(\n"
            '            f"{partition} has {sign} and no',
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
        (
            "H6: a lost start is set at our own trim though the ledger has lost the segments",
            "        if count:\n",
            "        if count < 0:\n",
        ),
        (
            "H6: a lost start is set at our own trim though a store cannot be asked",
            "        if listing.errors:\n",
            "        if listing.errors is ...:\n",
        ),
        (
            "H12: the ledger is not read again once the stores were listed",
            "        await self._ledger.barrier(led.key, self._barrier_deadline_ms)\n"
            "        if listing.errors:",
            "        if listing.errors:",
        ),
        (
            "a kept topic whose start was lost can neither be enabled nor adopted",
            'if topic is None or topic.state == "deleting" or',
            'if topic is None or topic.state != "enabled" or',
        ),
        (
            "H4: a start is set of a topic that ends",
            'if topic is None or topic.state == "deleting" or',
            "if topic is None or",
        ),
    ),
    *VERBS.edits(
        (
            "H39: a service ends what is remote of the topic that it enables by itself",
            "                    yes=True,\n                )",
            "                    yes=True,\n"
            "                    remains=Remains.END,\n                )",
        ),
        (
            "what a retention ends of what is kept is not shown",
            "keeps_remains=options.remains is Remains.KEEP",
            "keeps_remains=False",
        ),
    ),
    *API.edits(
        (
            "H1: --keep-remote keeps nothing",
            "Remains.of(keep=request.keep_remote, end=request.yes)",
            "Remains.of(keep=False, end=request.yes)",
        ),
    ),
    *ENABLING.edits(
        (
            "no topic is enabled until the topics of the service were verified again",
            "self._ledger.damage_of(key) or self._settings.damage_of_start(key)",
            "self._ledger.problem or self._settings.problem",
        ),
    ),
)
