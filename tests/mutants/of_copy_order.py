"""Planted bugs in what copies share: turns, slots, checks, quota."""

from tests.mutants.edits import Edit, Target

ORDER = Target("rlm/tasks/copy_order.py", ("tests/rlm/tasks/test_copy_order.py",))
CHECKS = Target(
    "rlm/tasks/copy_checks.py",
    (
        "tests/rlm/tasks/test_attempt.py",
        "tests/rlm/tasks/test_copy.py",
        "tests/rlm/tasks/test_copy_checks.py",
    ),
)
SLOTS = Target("rlm/tasks/copy_slots.py", ("tests/rlm/tasks/test_copy_slots.py",))
LIMITS = Target("rlm/topics/copy_limits.py", ("tests/rlm/cli/test_copy_limit.py",))
CLUSTER_LIMITS = Target("rlm/api/copy_limits.py", ("tests/rlm/cli/test_copy_limit.py",))
QUOTA = Target("rlm/tasks/copy_quota.py", ("tests/rlm/tasks/test_copy_quota.py",))

PAGES = Target("rsm_plugins/files/page_cache.py", ("tests/rsm_plugins/test_page_cache.py",))
PROGRESS = Target("rlm/tasks/copy_progress.py", ("tests/rlm/tasks/test_copy_progress.py",))
STATUS = Target("rlm/api/ports.py", ("tests/rlm/service/test_statuses.py",))
LEFT = Target("rlm/service/partition_problems.py", ("tests/rlm/service/test_statuses.py",))
TURNS = Target(
    "rlm/plans/copy_turns.py",
    (
        "tests/rlm/plans/test_copy_turns.py",
        "tests/rlm/tasks/test_pool.py",
        "tests/rlm/tasks/test_copy_order.py",
    ),
)

EDITS: tuple[Edit, ...] = (
    *PAGES.edits(
        (
            "what cannot be known of the page cache counts as cold",
            "        except OSError:\n            return True\n        return True\n",
            "        except OSError:\n            return False\n        return True\n",
        ),
    ),
    *PROGRESS.edits(
        (
            "the rate of copies is that since the start",
            "        while len(self._copied) > 2 and now_ms - self._copied[0][0] > _WINDOW_MS:\n",
            "        while False:\n",
        ),
        (
            "the rate of copies stays when they stop",
            "            took_ms = now_ms - first_ms\n",
            "            took_ms = last_ms - first_ms\n",
        ),
        (
            "H38: copies that take longer than a minute have no rate",
            "len(self._copied) > 2 and now_ms - self._copied[0][0]",
            "now_ms - self._copied[0][0]",
        ),
    ),
    *LEFT.edits(
        (
            "H38: a partition of which nobody knows has nothing to copy",
            "measured = {key for key in led if lags[key] is not None}",
            "measured = set(led)",
        ),
    ),
    *STATUS.edits(
        (
            "H38: a partition without a snapshot is not frozen",
            "return bool(self.frozen) if self.frozen or is_known else None",
            "return bool(self.frozen)",
        ),
    ),
    *TURNS.edits(
        (
            "backlogs of other partitions keep the newest segments waiting",
            "last_wait and (not first_wait or first_in_a_row >= _OTHERS_IN_A_ROW)",
            "last_wait",
        ),
        (
            "a busy partition keeps backlogs waiting for ever",
            "(not first_wait or first_in_a_row >= _OTHERS_IN_A_ROW)",
            "not first_wait",
        ),
        (
            "a backlog is copied to its end whoever waits",
            "return others_wait and ran_ms >= _TURN_MS and is_backlog(pending_segments)",
            "return False",
        ),
        (
            "a backlog gives way although nobody waits",
            "return others_wait and ran_ms",
            "return ran_ms",
        ),
    ),
    *ORDER.edits(
        (
            "G3: a step waits for nothing",
            "        await self._before._steps[step].wait()\n",
            "",
        ),
        (
            "G3: copies after a failed one are finished",
            "        if self._before._has_failed:\n",
            "        if self._before._has_failed and step is Step.STARTED:\n",
        ),
        (
            "G3: copies after a cancelled one are finished",
            '            errors[number] = Unavailable("the copy was cancelled")\n',
            "",
        ),
        (
            "a failed copy leaves those behind it waiting",
            "        for step in Step:\n            self.taken(step)\n",
            "",
        ),
        (
            "a failure lets later copies begin",
            "            if errors or gives_way():\n",
            "            if gives_way():\n",
        ),
        (
            "G10: all segments of a backlog are copied at a time",
            "            await slots.take(size_of(item))\n",
            "",
        ),
        (
            "the error of a later copy hides that of the first",
            "raise errors[min(errors)]",
            "raise errors[max(errors)]",
        ),
    ),
    *CHECKS.edits(
        (
            "H35: the topic is not asked for again before each copy",
            "        if refused is not None:\n",
            "        if refused is False:\n",
        ),
        (
            "H11: the store is not checked again after the upload",
            "        if problem is not None:\n",
            '        if problem == "another":\n',
        ),
        (
            "H13: leadership is not asked for again after the upload",
            "        await self._snapshots.check_leadership(led)\n",
            "",
        ),
        (
            "H17: the attempt is looked up in a stale ledger",
            "        await self._ledger.barrier(led.key, self._barrier_deadline_ms)\n",
            "",
        ),
        (
            "attempts at a store that hangs keep those at others waiting",
            "    return at[0]\n",
            "    return None\n",
        ),
    ),
    *SLOTS.edits(
        (
            "a small segment takes a whole slot",
            "        return 1 + size_bytes * _QUARTERS // self.whole_slot_bytes\n",
            "        return _QUARTERS\n",
        ),
        (
            "G10: large segments count as small ones",
            "        if size_bytes >= self.whole_slot_bytes:\n",
            "        if size_bytes > 1 << 60:\n",
        ),
        (
            "a small segment overtakes a large one that waits",
            "                if wanted > self._free:\n                    return\n",
            "                if wanted > self._free:\n"
            "                    self._waiting.rotate(-1)\n"
            "                    return\n",
        ),
        (
            "G10: a share is lost with the attempt that was given it and cancelled",
            "            if not turn.cancelled():\n                self._free += wanted\n",
            "",
        ),
        (
            "who waits behind a cancelled attempt waits for ever",
            "            self._serve()\n            raise\n",
            "            raise\n",
        ),
    ),
    *QUOTA.edits(
        (
            "the quota delays no copy",
            "                await self._clock.sleep_ms(slept_ms)\n",
            "                break\n",
        ),
        (
            "the quota is never charged",
            "            self._bucket.take(size_bytes, self._clock.monotonic_ms())\n",
            "",
        ),
        (
            "who comes later passes who waits for the quota",
            "        async with self._turn:\n",
            "        if self._turn:\n",
        ),
        (
            "who waits for the quota sees no change of the limit",
            "slept_ms = min(wait_ms, _LONGEST_SLEEP_MS)",
            "slept_ms = wait_ms",
        ),
        (
            "the limit is that of the start",
            "        self._bucket.change_rate(self._bytes_per_second(), now_ms)\n",
            "",
        ),
    ),
    *LIMITS.edits(
        (
            "what is configured counts though it was overruled",
            "return self.configured if overruling is None else overruling.bytes_per_second",
            "return self.configured if overruling else self.configured",
        ),
        (
            "a copy limit of a mistyped node is decided",
            "if node_id is not None and node_id not in known:",
            "if node_id is not None and node_id < 0:",
        ),
        (
            "a copy limit below the least is decided",
            "if bytes_per_second < LEAST_COPY_BYTES_PER_SECOND:",
            "if bytes_per_second < 0:",
        ),
    ),
    *CLUSTER_LIMITS.edits(
        (
            "H38: a silent service goes by what was decided for it",
            "[pb.NodeCopyLimit(node_id=at, problem=why) for at, why in problems.items()]",
            "[found.nodes[0]] * len(problems)",
        ),
        (
            "H38: a decision about a node without a service is not shown",
            'if one.HasField("node_id") and one.node_id not in known',
            "if False",
        ),
    ),
)
