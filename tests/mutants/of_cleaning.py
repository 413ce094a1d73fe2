"""Planted bugs in sweeps, in what stores are asked before a deletion, and in reports of it."""

from tests.mutants.edits import Edit, Target

CLEANUP = Target(
    "rlm/tasks/cleanup.py",
    (
        "tests/rlm/tasks/test_evidence.py",
        "tests/rlm/tasks/test_cleanup.py",
        "tests/rlm/tasks/test_cancel_everywhere.py",
        "tests/rlm/stores/test_tasks_over_stores.py",
    ),
)
DELETION = Target(
    "rlm/tasks/segment_deletion.py",
    (
        "tests/rlm/tasks/test_segment_deletion.py",
        "tests/rlm/tasks/test_cleanup.py",
        "tests/rlm/tasks/test_late_manifest.py",
        "tests/rlm/tasks/test_cancel_everywhere.py",
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
            "H16: the grace goes by another clock",
            "leftovers(entries, sweeper, self._clock.now_ms())",
            "leftovers(entries, sweeper, self._clock.monotonic_ms() + sweeper.grace_ms)",
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
            "COPY_SEGMENT_STARTED if not deletion.despite_manifest:",
            "COPY_SEGMENT_STARTED:",
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
    *DELETION.edits(
        (
            "H5: nothing is checked before DELETE_SEGMENT_STARTED",
            "        group = await self._check(group, permit, progress)\n"
            "        await each_at_once(group, _GROUP, "
            "lambda one: self._begin(",
            "        await each_at_once(group, _GROUP, lambda one: self._begin(",
        ),
        (
            "H10: objects go before DELETE_SEGMENT_STARTED was read back",
            "        await each_at_once(group, _GROUP, lambda one: self._begin(one, permit))\n",
            "",
        ),
        (
            "H6: an attempt that got its manifest after all is deleted",
            "        await each_at_once(group, _GROUP, permit.check_reason)\n",
            "",
        ),
        (
            "H5: nothing is checked right before objects go",
            "        group = await self._check(group, permit, progress)\n        progress.gone",
            "        progress.gone",
        ),
        (
            "a store that does not delete ends the batch",
            "            except RemoteStorageError as error:\n                progress.answered(",
            "            except KeyError as error:\n                progress.answered(",
        ),
        (
            "a store that refuses a call ends the batch",
            "        except RemoteStorageError as error:\n            progress.store_failed(",
            "        except KeyError as error:\n            progress.store_failed(",
        ),
        (
            "a store that is away is asked for every segment",
            "            if store_of(metadata) in progress.away:\n                return\n",
            "",
        ),
        (
            "a store that is away is an error of every segment",
            "        if store_id in self.away and isinstance(error, Unavailable):\n"
            "            return\n",
            "",
        ),
        (
            "H12: a segment that may still be written is deleted with the others",
            "            if permit.may_be_written(one):\n",
            "            if not one:\n",
        ),
        (
            "a store that fences a segment counts as one that does not delete it",
            "        for answer in fenced:\n            raise answer\n",
            "        progress.result.store_errors += fenced\n",
        ),
        (
            "what went in the call in which a store fenced is not recorded",
            "            if answer not in fenced:\n",
            "            if not fenced:\n",
        ),
        (
            "a store that is away is asked again by the next group",
            "asked = [one for one in group if store_of(one) not in progress.away]",
            "asked = list(group)",
        ),
        (
            "G4: a segment leaves the ledger before its objects are gone",
            "                progress.answered(metadata, error)\n            else:\n",
            "                progress.answered(metadata, error)\n            finally:\n",
        ),
        (
            "G4: a segment that its store did not delete leaves the ledger",
            "        if error is None:\n            self.gone.append(metadata)\n        else:\n",
            "        self.gone.append(metadata)\n        if error is not None:\n",
        ),
        (
            "G4: no entry leaves the ledger",
            "        await self.bury(metadata, permit.leader_epoch)\n",
            "",
        ),
        (
            "G1: a freeze within a group does not stop it",
            "            _refuse(permit)\n            try:\n",
            "            try:\n",
        ),
        (
            "G1: a freeze between two stores does not stop a group",
            "            _refuse(permit)\n            await self._delete_in_one_call(",
            "            await self._delete_in_one_call(",
        ),
        (
            "G1: a call deletes more segments than a freeze may wait for",
            "_GROUP = 64\n",
            "_GROUP = 128\n",
        ),
        (
            "G1: a freeze right before objects go does not stop it",
            "    if stopped is not None:\n        raise Fenced(stopped)",
            "    if stopped == '':\n        raise Fenced(stopped)",
        ),
        (
            "what was deleted before a freeze is not recorded",
            "stopped = error  # what is gone by now is still recorded",
            "raise Fenced(str(error)) from error",
        ),
        (
            "H11: stores are not asked who they are",
            "                await self._evidence.check_identity([one])\n",
            "                store_of(one)\n",
        ),
        (
            "a store that is away keeps the segments of the others",
            "            except Unavailable as error:\n                progress.store_failed(",
            "            except KeyError as error:\n                progress.store_failed(",
        ),
        (
            "H11: a segment is deleted though its store does not say who it is",
            "        return [one for one in asked if store_of(one) not in progress.away]\n",
            "        return asked\n",
        ),
        (
            "H5: leadership is not asked for",
            "        await permit.check_right()\n",
            "",
        ),
        (
            "H12: a manifest that lands late stays",
            "        if found.metadata is None and not found.unreadable:\n            return\n",
            "        return\n",
        ),
        (
            "after an error in a group everything else is still begun",
            "            if has_failed:\n                return\n",
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
            "            return FoundManifest(metadata=decode_value(manifest.segment_metadata))\n"
            "        except Corrupt as error:\n"
            "            return FoundManifest(metadata=None, unreadable=str(error))",
            "            return FoundManifest(metadata=decode_value(manifest.segment_metadata))\n"
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
            "index.upper_position(local.last_offset + 1)",
            "index.upper_position(local.base_offset + 1)",
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
            "one snapshot saves copy rounds for ever",
            "known = self._idle.pop(led.topic_id_partition.key, None)",
            "known = self._idle.get(led.topic_id_partition.key, None)",
        ),
        (
            "a snapshot taken while a copy runs saves the next round",
            "        if snapshot.key in self._pool.running:\n",
            "        if not self._pool:\n",
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
            "if record is None and trusted and _may_be_cut(snapshot, published):",
            "if record is None and not trusted and _may_be_cut(snapshot, published):",
        ),
        (
            "H4: a leader of an older epoch tells",
            "is_ours = snapshot.frozen is None and snapshot.ledger.newest_epoch <= "
            "snapshot.led.leader_epoch",
            "is_ours = snapshot.frozen is None",
        ),
    ),
)
