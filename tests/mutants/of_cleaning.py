"""Planted bugs in sweeps, in what stores are asked before a deletion, and in reports of it."""

from tests.mutants.edits import Edit, Target

CLEANUP = Target(
    "rlm/tasks/cleanup.py",
    (
        "tests/rlm/tasks/test_evidence.py",
        "tests/rlm/tasks/test_cleanup.py",
        "tests/rlm/tasks/test_h16_clocks.py",
        "tests/rlm/tasks/test_cancel_everywhere.py",
        "tests/rlm/stores/test_tasks_over_stores.py",
    ),
)
IDENTITY = Target(
    "rlm/stores/connection.py",
    (
        "tests/rlm/tasks/test_evidence.py",
        "tests/rlm/tasks/test_trim.py",
        "tests/rlm/tasks/test_cleanup.py",
        "tests/rlm/stores/test_tasks_over_stores.py",
    ),
)
EVIDENCE = Target(
    "rlm/tasks/evidence.py",
    (
        "tests/rlm/tasks/test_evidence.py",
        "tests/rlm/tasks/test_trim.py",
        "tests/rlm/tasks/test_cleanup.py",
        "tests/rlm/stores/test_tasks_over_stores.py",
    ),
)
READABLE = Target("rlm/tasks/evidence.py", ("tests/rlm/tasks/test_accept_loss.py",))
ROUND = Target(
    "rlm/tasks/expiration.py",
    ("tests/rlm/tasks/test_expiration.py", "tests/rlm/tasks/test_evidence.py"),
)
WATCH = Target("rlm/tasks/copy_watch.py", ("tests/rlm/tasks/test_copy_watch.py",))
SCHEDULE = Target("rlm/tasks/schedule.py", ("tests/rlm/tasks/test_schedule.py",))
FIRST = Target("rlm/tasks/expiration.py", ("tests/rlm/tasks/test_expiration.py",))
LINEAGE_PUBLISHER = Target(
    "rlm/remote_log/snapshot_cache.py", ("tests/rlm/tasks/test_lineage_publisher.py",)
)

EDITS: tuple[Edit, ...] = (
    *CLEANUP.edits(
        (
            "H2: what was overruled is never asserted again",
            "        await self._settings.reassert(snapshot.key, led.leader_epoch)\n",
            "",
        ),
        (
            "H3: disputes are never repaired",
            "        repaired = await self._ledger.repair(snapshot.key, led.leader_epoch)\n",
            "        repaired = 0\n",
        ),
        (
            "G1: a freeze within a round does not stop it",
            "stopped = self._refusal(snapshot)  # a freeze counts",
            "stopped = None  # a freeze counts",
        ),
        (
            "H6: attempts that were live before the snapshot are judged",
            "            live={*live_before, *self._live},\n",
            "            live={*self._live},\n",
        ),
        (
            "H6: attempts that began after the snapshot are judged",
            "            live={*live_before, *self._live},\n",
            "            live={*live_before},\n",
        ),
        (
            "H16: the grace is over where the time is not certain",
            "sweeper, None if isinstance(now_ms, Held) else now_ms",
            "sweeper, 1 << 62 if isinstance(now_ms, Held) else now_ms",
        ),
        (
            "H16: clocks that disagree sweep",
            "return self._refusal(snapshot) or self._time.disagreement()",
            "return self._refusal(snapshot)",
        ),
        (
            "H16: clocks that disagree retire lost segments",
            "        if refused is None and self._time.disagreement() is None:\n",
            "        if refused is None:\n",
        ),
        (
            "H16: the clocks are not compared before a sweep deletes",
            "            done.stopped = self._why_not_deleted(snapshot)\n",
            "            done.stopped = self._refusal(snapshot)\n",
        ),
        (
            "H11: the wrong store is asked for what it has",
            "        await self._evidence.check_identity([metadata])\n        found",
            "        found",
        ),
        (
            "H6: the objects that a manifest vouches for are not looked at",
            "presence = await self._evidence.presence(found.metadata)\n        broken",
            "presence = Presence.COMPLETE\n        broken",
        ),
        (
            "H5: leadership is not asked for before an adoption",
            "await self._snapshots.check_leadership(led)\n        await "
            "self._ledger.publish(finished",
            "await self._ledger.publish(finished",
        ),
        (
            "H6: a manifest that cannot be read counts as none right before objects go",
            "if found.metadata is not None or found.unreadable:",
            "if found.metadata is not None:",
        ),
        (
            "H6: what has ended waits for a manifest that it has",
            "        if not deletion.despite_manifest:\n",
            "        if deletion.reason:\n",
        ),
        (
            "H6: a deletion that was begun goes on though its segment has a manifest",
            "        if not deletion.despite_manifest:\n",
            "        if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and (\n"
            "            not deletion.despite_manifest\n"
            "        ):\n",
        ),
        (
            "each segment of a sweep is deleted by a call of its own",
            "                    deletions.setdefault(deletion, []).append(entry.metadata)\n",
            "                    await self._delete(snapshot, [entry.metadata], deletion)\n"
            "                    done.deleted += 1\n",
        ),
        (
            "H4: what another leader epoch wrote below the start has ended, too",
            "        epoch = self._settings.view.remote_log_start_epoch(snapshot.key)\n",
            "        epoch = snapshot.led.leader_epoch\n",
        ),
        (
            "H11: a store that is away takes the others' turn",
            "        if store_id in away:\n            return None\n",
            "",
        ),
    ),
    *IDENTITY.edits(
        (
            "H11: a store without identity is ours",
            'return f"the store has no identity',
            'return None and f"the store has no identity',
        ),
        (
            "H11: another store is ours",
            "    if found.store_id != store_id:\n",
            "    if found.store_id is None:\n",
        ),
        (
            "H12: the store of another cluster is ours",
            "    if found.cluster_id != cluster_id:\n",
            "    if not found.cluster_id:\n",
        ),
    ),
    *READABLE.edits(
        (
            "H25: a copy that only lacks its manifest is accepted as lost and deleted",
            "if not needs_manifest and await self.is_readable(metadata):",
            "if not needs_manifest and await self.is_readable(metadata) and not metadata:",
        ),
        (
            "H25: a log that was cut short counts as readable",
            "has_end = found_bytes == size - last_and_next.start",
            "has_end = found_bytes >= 0",
        ),
        (
            "H25: indexes that were cut short count as readable",
            "return has_end and len(indexes) == metadata.custom().indexes_size_bytes",
            "return has_end and len(indexes) > 0",
        ),
        (
            "H25: a log that is longer than recorded counts as readable",
            "end=size + 1)",
            "end=size)",
        ),
    ),
    *EVIDENCE.edits(
        (
            "H11: only the first store is asked who it is",
            "            if problem is not None:\n                raise Invalid(problem)\n",
            "            if problem is not None:\n                raise Invalid(problem)\n"
            "            break\n",
        ),
        (
            "H11: an object of another size is there",
            "if seen.presence is Presence.COMPLETE and seen.manifest_present:",
            "if seen.presence is not Presence.MISSING and seen.manifest_present:",
        ),
        (
            "H11: a segment without manifest is trimmed on",
            "if seen.presence is Presence.COMPLETE and seen.manifest_present:",
            "if seen.presence is Presence.COMPLETE or not seen.manifest_present:",
        ),
        (
            "H6: a manifest that cannot be read is none",
            "        except Corrupt as error:\n            return FoundManifest(metadata=None, "
            "unreadable=str(error))\n        try:",
            "        except Corrupt as error:\n            return FoundManifest(metadata=None)\n"
            "        try:",
        ),
        (
            "H6: a manifest of nonsense is none",
            "            return FoundManifest(metadata=found)\n"
            "        except Corrupt as error:\n"
            "            return FoundManifest(metadata=None, unreadable=str(error))",
            "            return FoundManifest(metadata=found)\n"
            "        except Corrupt as error:\n"
            "            return FoundManifest(metadata=None)",
        ),
        (
            "H12: a manifest of another cluster is ours",
            "(manifest.cluster_id, manifest.store_id) != (self._cluster_id, store_of(metadata))",
            "manifest.store_id != store_of(metadata)",
        ),
        (
            "H11: a manifest of another store is this one's",
            "(manifest.cluster_id, manifest.store_id) != (self._cluster_id, store_of(metadata))",
            "manifest.cluster_id != self._cluster_id",
        ),
        (
            "H13: bytes are not compared before the first trim",
            "        if batch != await self._remote_batch(metadata, header):\n",
            "        if not await self._remote_batch(metadata, header):\n",
        ),
        (
            "H13: half a batch of the broker is compared",
            "        if len(batch) < header.size_bytes:\n",
            "        if len(batch) < 0:\n",
        ),
        (
            "H13: another batch of the copy is compared",
            "            if header.base_offset == local.base_offset:\n",
            "            if header.base_offset <= local.base_offset:\n",
        ),
        (
            "H13: the range asked for ends before the batch that is compared",
            "index.end_position(local.last_offset)",
            "index.upper_position(local.last_offset + 1)",
        ),
    ),
    *ROUND.edits(
        (
            "a snapshot is given on though the trim has acted",
            "                if await step(seen):\n                    seen = None\n",
            "                await step(seen)\n",
        ),
        (
            "an old snapshot is given on",
            "if seen is None or self._is_old(seen):",
            "if seen is None:",
        ),
        (
            "H6: attempts that began before the snapshot are not known as live",
            "        live_before = self._cleanup.live_attempts()\n"
            "        snapshot = await self._snapshots.take(led)\n",
            "        snapshot = await self._snapshots.take(led)\n"
            "        live_before = self._cleanup.live_attempts()\n",
        ),
        (
            "a trim that failed is not reported",
            "                failures.append(error)\n",
            "                del error\n",
        ),
        (
            "a snapshot is given on though the step failed",
            "                failures.append(error)\n                seen = None\n",
            "                failures.append(error)\n",
        ),
        (
            "H41: a snapshot is taken while a DeleteRecords may still be executed",
            "        await self._trim.settle(led)\n",
            "",
        ),
    ),
    *WATCH.edits(
        (
            "a snapshot under an older epoch saves a copy round",
            "            and known.leader_epoch == led.leader_epoch\n",
            "",
        ),
        (
            "an old snapshot saves a copy round",
            "            and self._clock.monotonic_ms() < known.until_ms\n",
            "",
        ),
        (
            "one snapshot saves copy rounds for many intervals",
            "_COUNTS_FOR_INTERVALS = 1.25",
            "_COUNTS_FOR_INTERVALS = 3",
        ),
        (
            "a snapshot taken while a copy runs saves the next round",
            "        if self._pool.is_running(snapshot.key):\n",
            "        if not self._pool:\n",
        ),
    ),
    *FIRST.edits(
        (
            "a run begins with a snapshot of any age",
            "if first is None or self._is_old(first):",
            "if first is None:",
        ),
    ),
    *SCHEDULE.edits(
        (
            "a run of an earlier leadership is taken for one of this",
            "gone = (self._known | self._ending) - now",
            "gone = self._known - now",
        ),
        (
            "G10: snapshots that hang are begun again at each interval",
            "row.key not in self._seeing and ",
            "",
        ),
        (
            "what is led elsewhere meanwhile gets a job",
            "not self._is_led(row.key) or ",
            "",
        ),
        (
            "a snapshot from before the job that runs is used after it",
            "        if self._pool.is_running(row.key):\n",
            "        if not self._pool:\n",
        ),
        (
            "what is seen is old when its job begins, since many wait",
            "if self._pool.waiting_count >= GROUP_SIZE or ",
            "if ",
        ),
        (
            "G6: what is left after an interval is not submitted",
            "                for row in left:\n",
            "                for row in left[:0]:\n",
        ),
        (
            "G6: one snapshot that cannot be taken ends all jobs",
            "        except Exception as error:",
            "        except ArithmeticError as error:",
        ),
    ),
    *LINEAGE_PUBLISHER.edits(
        (
            "H4: two snapshots publish one after the other what the first has published",
            "        record = self._due(snapshot)\n        if record is None:\n            return\n"
            "        await self._settings",
            "        record = self._due(snapshot)\n        assert record is not None\n"
            "        await self._settings",
        ),
        (
            "a settings topic that takes no records is tried with every snapshot",
            "            self._quiet_until_ms[snapshot.key] = self._clock.monotonic_ms() "
            "+ QUIET_MS\n",
            "            pass\n",
        ),
        (
            "H8: broker retention cuts what only the epoch file knows",
            "if trusted and _may_be_cut(snapshot, published):",
            "if not trusted and _may_be_cut(snapshot, published):",
        ),
        (
            "H4: a leader of an older epoch tells",
            "is_ours = snapshot.frozen is None and snapshot.ledger.newest_epoch <= "
            "snapshot.led.leader_epoch",
            "is_ours = snapshot.frozen is None",
        ),
    ),
)
