"""Planted bugs in snapshots and copies: what is asked, in which order, and what is asked again."""

from tests.mutants.edits import Edit, Target

SNAPSHOT = Target(
    "rlm/remote_log/snapshots.py",
    (
        "tests/rlm/tasks/test_snapshot_reader.py",
        "tests/rlm/tasks/test_copy.py",
        "tests/rlm/tasks/test_trim.py",
        "tests/rlm/tasks/test_h08_cut_segment.py",
    ),
)
ATTEMPT = Target(
    "rlm/tasks/copy_attempt.py",
    (
        "tests/rlm/tasks/test_attempt.py",
        "tests/rlm/tasks/test_copy.py",
        "tests/rlm/tasks/test_copy_order.py",
        "tests/rlm/tasks/test_copy_quota.py",
    ),
)
BELOW = Target("rlm/log_dir/epochs_below.py", ("tests/rlm/log_dir/test_h08_epochs_below.py",))
SCANNER = Target("rlm/log_dir/scanner.py", ("tests/rlm/log_dir/test_scanner.py",))
PREPARE = Target(
    "rlm/tasks/segment_data.py",
    ("tests/rlm/tasks/test_segment_data.py", "tests/rlm/tasks/test_copy.py"),
)
REQUEST = Target(
    "rlm/tasks/copy_request.py",
    ("tests/rlm/tasks/test_copy.py", "tests/rlm/tasks/test_attempt.py"),
)
COPY_RUNS = Target("rlm/tasks/copy_runs.py", ("tests/rlm/tasks/test_copy_runs.py",))
CLUSTER_COPY = Target("rlm/api/cluster_copy.py", ("tests/rlm/api/test_copy_closed.py",))
BACKLOG = Target("rlm/tasks/copy.py", ("tests/rlm/service/test_safety_gauges.py",))
COPY = Target(
    "rlm/tasks/copy.py",
    (
        "tests/rlm/tasks/test_attempt.py",
        "tests/rlm/tasks/test_copy.py",
        "tests/rlm/tasks/test_copy_watch.py",
    ),
)

EDITS: tuple[Edit, ...] = (
    *BACKLOG.edits(
        (
            "copies seem to fail while a long backlog is copied",
            "self._good_runs.note(GoodRun.COPY, snapshot.key)  # a backlog is one long run",
            "pass",
        ),
    ),
    *SNAPSHOT.edits(
        (
            "H17: a snapshot's settings are as stale as they may be",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n",
            "",
        ),
        (
            "H17: a snapshot's ledger is as stale as it may be",
            "        await self._ledger.barrier(led.key, self._barrier_deadline_ms)\n",
            "",
        ),
        (
            "H4: the disk is older than the last stable offset",
            "        watermarks = await self._watermarks(led)\n"
            "        log = await self._scan(led)\n",
            "        log = await self._scan(led)\n"
            "        watermarks = await self._watermarks(led)\n",
        ),
        (
            "H17: the ledger is older than the disk",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n"
            "        await self._ledger.barrier(led.key, self._barrier_deadline_ms)\n"
            "        ledger = self._ledger.ledger(led.key)\n",
            "        ledger = self._ledger.ledger(led.key)\n"
            "        await self._settings.barrier(self._barrier_deadline_ms)\n"
            "        await self._ledger.barrier(led.key, self._barrier_deadline_ms)\n",
        ),
        (
            "H8: the batches below the epoch file's first entry are left out of the lineage",
            "leaders_lineage(ledger, self._published(led, log.lineage), log.whole_lineage)",
            "leaders_lineage(ledger, self._published(led, log.lineage), log.lineage)",
        ),
        (
            "H8: what leaders have published is left out of the lineage",
            "leaders_lineage(ledger, self._published(led, log.lineage), log.whole_lineage)",
            "leaders_lineage(ledger, None, log.whole_lineage)",
        ),
        (
            "the log's end is the high watermark: what is not committed counts as lost",
            "LATEST_TIMESTAMP, replica_id=DEBUGGING_REPLICA_ID)",
            "LATEST_TIMESTAMP)",
        ),
        (
            "H8: a history that cannot be read counts as none behind a trim",
            "if first is not None and first.start_offset <= start:",
            "if first is not None:",
        ),
        (
            "H4: what an operator accepted does not end a freeze",
            "accepted_epoch=divergence.epoch if divergence else NONE_ACCEPTED,",
            "accepted_epoch=NONE_ACCEPTED,",
        ),
        (
            "H4: what an operator accepted has no end",
            "accepted_offset=divergence.offset if divergence else MAX_OFFSET,",
            "accepted_offset=MAX_OFFSET,",
        ),
        (
            "a topic that is kept counts as enabled",
            'enabled=record is not None and record.state == "enabled",',
            "enabled=record is not None,",
        ),
        (
            "H35: native tiering is not noticed",
            'native_tiering=_value(config, "remote.storage.enable") == "true",',
            "native_tiering=False,",
        ),
        (
            "internal topics are ours to tier",
            "internal=description.internal or ",
            "internal=",
        ),
        (
            "H13: a topic recreated under its name is the same",
            "if topic.topic_id != partition.topic_id or now is None:",
            "if now is None:",
        ),
        (
            "H5: leadership of another node is ours",
            "if now.leader != self._node_id or now.leader_epoch != led.leader_epoch:",
            "if now.leader_epoch != led.leader_epoch:",
        ),
        (
            "H5: leadership under another epoch is the same",
            "if now.leader != self._node_id or now.leader_epoch != led.leader_epoch:",
            "if now.leader != self._node_id:",
        ),
        (
            "H13: the directory may be of another topic id",
            "        check_topic_id("
            "partition.topic, partition.partition, log.topic_id, partition.topic_id)\n",
            "",
        ),
        (
            "H13: the epoch file may be older than the leadership",
            "        if latest != led.leader_epoch:\n",
            "        if latest is not None and latest > led.leader_epoch:\n",
        ),
        (
            "H13: the epoch file may be newer than the leadership",
            "        if latest != led.leader_epoch:\n",
            "        if latest is None or latest < led.leader_epoch:\n",
        ),
        (
            "G2: open transactions do not hold the last stable offset",
            "await self._offset(led, LATEST_TIMESTAMP, read_committed=True)",
            "await self._offset(led, LATEST_TIMESTAMP)",
        ),
        (
            "H14: retention by size is not looked at",
            'RETENTION_CONFIGS = ("retention.ms", "retention.bytes")',
            'RETENTION_CONFIGS = ("retention.ms",)',
        ),
        (
            "H5: offsets are asked of whoever leads, under whatever epoch",
            "            leader_epoch=led.leader_epoch,\n            read_committed=",
            "            leader_epoch=-1,\n            read_committed=",
        ),
    ),
    *ATTEMPT.edits(
        (
            "H13: leadership is not asked for before the attempt leaves a record",
            "        await self._checks.before_upload(led, target.store_id)\n",
            "",
        ),
        (
            "G3: objects go up without a COPY_SEGMENT_STARTED",
            "            await self._ledger.publish(started, led.leader_epoch, NO_PREVIOUS)\n",
            "            pass\n",
        ),
        (
            "H13: nothing is checked again after the upload",
            "        await self._check_in_turn(led, prepared, segment_id, target, turn)\n",
            "        await turn.after(Step.STORED)\n",
        ),
        (
            "H13: the manifest is written long after the checks",
            " > _CHECKED_FOR_MS:",
            " > 10 * _CHECKED_FOR_MS:",
        ),
        (
            "G3: a segment is uploaded after one that cannot be read",
            "        await turn.take(Step.STARTED)\n",
            "        turn.taken(Step.STARTED)\n",
        ),
        (
            "G3: a manifest is written before that of the segment before",
            "        await turn.after(Step.STORED)\n",
            "",
        ),
        (
            "the last checks are made while earlier segments are uploaded",
            "        await turn.take(Step.UPLOADED)\n",
            "        turn.taken(Step.UPLOADED)\n",
        ),
        (
            "copies do not count against the quota",
            "            await self._quota.take(segment.size_bytes)\n",
            "",
        ),
        (
            "a copy drops what consumers have in the page cache",
            "        if not was_cached:\n",
            "        if True:\n",
        ),
        (
            "G10: attempts that wait for others keep them out",
            "        await turn.after(Step.ADMITTED)\n",
            "",
        ),
        (
            "G10: the attempts of all partitions have no bound",
            "        async with self._slots.share(segment.size_bytes):\n",
            "        if self._slots:\n",
        ),
        (
            "H12: a copy beyond its deadline gets a manifest",
            "        if self._clock.monotonic_ms() >= deadline_at_ms:\n",
            "        if self._clock.monotonic_ms() > deadline_at_ms + 1:\n",
        ),
        (
            "H16: the deadline of a copy goes by the wall clock",
            "        if self._clock.monotonic_ms() >= deadline_at_ms:\n",
            "        if self._clock.now_ms() >= deadline_at_ms:\n",
        ),
        (
            "G3: COPY_SEGMENT_FINISHED is published before the manifest is written",
            '        with self._step("copy: write manifest", parent):\n'
            "            await store.write_manifest(\n"
            "                finished.locator(self._settings.cluster_id), "
            "self._manifest(snapshot, finished)\n"
            "            )\n"
            "        turn.taken(Step.STORED)\n"
            '        with self._step("copy: publish finished", parent):\n'
            "            await self._ledger.publish(finished, led.leader_epoch, int(_STARTED))\n",
            '        with self._step("copy: publish finished", parent):\n'
            "            await self._ledger.publish(finished, led.leader_epoch, int(_STARTED))\n"
            "        turn.taken(Step.STORED)\n"
            '        with self._step("copy: write manifest", parent):\n'
            "            await store.write_manifest(\n"
            "                finished.locator(self._settings.cluster_id), "
            "self._manifest(snapshot, finished)\n"
            "            )\n",
        ),
        (
            "H12: our own attempt is not known as live",
            "        self._ids.add(segment_id)\n",
            "",
        ),
        (
            "an attempt that ended stays live for ever",
            "            self._ids.discard(segment_id)\n",
            "            pass\n",
        ),
        (
            "H11: the store is not checked before a run",
            "        if problem is not None:\n            raise Invalid(problem)",
            "        if problem == '':\n            raise Invalid(problem)",
        ),
        (
            "H3: somebody else's record under our id is ours",
            "is_ours = entry is not None and entry.writer == self._settings.writer",
            "is_ours = entry is not None",
        ),
        (
            "H3: an attempt that somebody has ended goes on",
            "if entry is None or not is_ours or entry.state is not _STARTED or entry.disputed:",
            "if entry is None or not is_ours or entry.disputed:",
        ),
        (
            "H3: an attempt whose record is disputed goes on",
            "if entry is None or not is_ours or entry.state is not _STARTED or entry.disputed:",
            "if entry is None or not is_ours or entry.state is not _STARTED:",
        ),
        (
            "H31: the end offset of the metadata is the next one's",
            "end_offset=prepared.next_offset - 1,",
            "end_offset=prepared.next_offset,",
        ),
        (
            "G9: the checksum of the log is not recorded",
            "            log_crc32c=prepared.data.log_crc32c,\n",
            "",
        ),
        (
            "H2: the manifest does not know the remote log start",
            "remote_log_start_offset=snapshot.remote_log_start_offset or 0,",
            "remote_log_start_offset=0,",
        ),
    ),
    *PREPARE.edits(
        (
            "H13: a file that changed since it was planned is copied",
            "    if file != (segment.inode, segment.size_bytes):\n",
            "    if file[0] != segment.inode:\n",
        ),
        (
            "H13: batches of another history are copied",
            "        if not scan.agrees_with(lineage):\n",
            "        if scan is None:\n",
        ),
        (
            "H9: aborts whose marker lies in a later segment are left out",
            "        if segment.base_offset >= first.base_offset:\n",
            "        if segment.base_offset == first.base_offset:\n",
        ),
        (
            "G9: the offset index is not checked",
            "    OffsetIndex(memoryview(offsets), segment.base_offset).check(scan.size_bytes)\n",
            "",
        ),
        (
            "G9: the time index is not checked",
            "    TimeIndex(memoryview(times), segment.base_offset).check()\n",
            "",
        ),
        (
            "H8: the stored lineage holds what lies behind the segment",
            "encode_leader_epochs(lineage.below(next_offset).entries)",
            "encode_leader_epochs(lineage.entries)",
        ),
        (
            "H4: the segment's epochs are all of the lineage",
            "epochs=lineage.clip(segment.base_offset, segment.next_offset),",
            "epochs=lineage.entries,",
        ),
    ),
    PREPARE.harmless(
        "the file then is not the one that was sampled, and gets no manifest: it is sampled again "
        "after the upload",
        "H13: a file that became shorter is copied as far as it goes",
        "    if left:\n        raise Fenced",
        "    if left < 0:\n        raise Fenced",
    ),
    *COPY.edits(
        (
            "H17: a round begins before settings and ledger were read",
            "(self._ledger.is_ready and self._settings.is_ready):\n            raise",
            "(self._ledger.is_ready or self._settings.is_ready):\n            raise",
        ),
        (
            "H2: the first copy does not write the remote log start down",
            "        if refuse_topic(snapshot.topic.state) is None:\n            await",
            "        if refuse_topic(snapshot.topic.state) is not None:\n            await",
        ),
        (
            "H2: the remote log start is written again with every round",
            "        if snapshot.remote_log_start_offset is not None:\n            return snapshot",
            "        if snapshot.remote_log_start_offset == -1:\n            return snapshot",
        ),
        (
            "H11: the target is not looked at before the first copy",
            "            await self._copier.check_target(led.topic_id_partition)\n",
            "            pass\n",
        ),
        (
            "H35: one replica does not wait for the recovery point",
            "replicas=len(snapshot.led.replicas),",
            "replicas=2,",
        ),
    ),
    *REQUEST.edits(
        (
            "copying now goes on beyond the offset that was asked for",
            "if up_to is None or one.base_offset < up_to)",
            "if up_to is None or one.base_offset <= up_to)",
        ),
    ),
    *CLUSTER_COPY.edits(
        (
            "a partition without a leader is not asked for again where others took long",
            "until_ms = now_ms + _LED_WITHIN_MS  # the first round may take hours\n",
            "until_ms = now_ms\n",
        ),
    ),
    *COPY_RUNS.edits(
        (
            "a run that nobody watches any more is forgotten while its job runs",
            "        if not (run.watchers or run.is_queued):\n",
            "        if not run.watchers:\n",
        ),
        (
            "a run that nobody watches waits for ever when its next job was not queued",
            "                if not run.watchers:\n",
            "                if run.watchers < 0:\n",
        ),
        (
            "a run goes on for ever where another segment is to be waited for each time",
            "run.failures = 0 if run.request.segments > before else run.failures\n",
            "run.waited_ms = 0 if run.request.segments > before else run.waited_ms\n",
        ),
        (
            "a trim that was held counts as done",
            "    elif status.reason in _HELD and status.reason not in _ALL_TRIMMED:\n",
            "    elif status.reason == '':\n",
        ),
        (
            "a run that fails for good is repeated for ever",
            "            if not run.watchers or self._is_final(run, error):\n",
            "            if not run.watchers:\n",
        ),
        (
            "a trim that is held for a moment ends the run",
            "            if is_held_for_now and self._waits(",
            "            if status is None and self._waits(",
        ),
        (
            "a partition without a leader for a moment ends its run",
            "            if not self._is_led_soon(run):\n",
            "            if True:\n",
        ),
        (
            "a plan that was dropped ends the run",
            "        if isinstance(error, Fenced) or not isinstance(error, RemoteStorageError):\n",
            "        if not isinstance(error, RemoteStorageError):\n",
        ),
    ),
    *BELOW.edits(
        (
            "H13: batches of later epochs than the epoch file's first entry are believed",
            "newest <= epoch <= first.epoch",
            "newest <= epoch",
        ),
        (
            "H13: a batch of an older epoch than the entry that it is above is believed",
            "fits = epoch >= first.epoch",
            "fits = True",
        ),
        (
            "H13: a segment that ends below the first entry proves which epochs are below it",
            "if position > size_bytes or next_offset != first.start_offset:",
            "if position > size_bytes:",
        ),
        (
            "H13: a file that was replaced since the scan listed it is believed",
            "if status.st_ino != segment.inode:",
            "if status.st_ino < 0:",
        ),
        (
            "H39: a segment of a former topic with the same path counts as read",
            "key = (segment, first.epoch)",
            "key = (segment.path, first.epoch)",
        ),
        (
            "headers are read again at each scan",
            "        self._found[key] = found\n",
            "",
        ),
    ),
    *SCANNER.edits(
        (
            "H13: what a small file said once is believed for ever",
            "if known is None or known[0] != data:",
            "if known is None:",
        ),
    ),
)
