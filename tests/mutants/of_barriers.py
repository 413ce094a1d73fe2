"""Planted bugs in how long a Fetch waits for barriers, and in what a barrier shows."""

from tests.mutants.edits import Edit, Target

_SLOW = ("tests/rlm/proxy/test_h17_slow_barriers.py",)
LIMIT = Target("rlm/proxy/settling.py", _SLOW)
FETCH = Target("rlm/proxy/fetch.py", _SLOW)
SPLICE = Target("rlm/proxy/splice.py", (*_SLOW, "tests/rlm/proxy/test_splice.py"))
TIER = Target("rlm/remote_log/leader_view.py", ("tests/rlm/test_local_tier.py",))

EDITS: tuple[Edit, ...] = (
    *LIMIT.edits(
        (
            "H17: a Fetch waits for no barrier beyond its max_wait",
            "        return self._until_ms - self._clock.monotonic_ms()\n",
            "        return self._deadline_ms - self._clock.monotonic_ms()\n",
        ),
        (
            "G6: each Fetch waits for barriers that do not pass",
            "return 0 if self._clock.monotonic_ms() < self._pause_ends_ms else self._wait_ms",
            "return self._wait_ms",
        ),
        (
            "G6: clients that have left are not counted, and wait again when they come back",
            "        passed = False\n        try:\n",
            "        passed = True\n        try:\n",
        ),
        (
            "H17: barriers that fail at once keep all others from being waited for",
            "beyond_ms > _LEAST_BARRIER_MS:",
            "beyond_ms > -1:",
        ),
        (
            "H17: a pause without end, as each Fetch in it begins it anew",
            "        if had_time and beyond_ms",
            "        if beyond_ms",
        ),
        (
            "H17: a barrier that had no time keeps all others from being waited for",
            "self._until_ms - max(began_ms, self._deadline_ms) > _LEAST_BARRIER_MS",
            "self._until_ms > self._deadline_ms",
        ),
        (
            "G6: each Fetch of a partition that is not settled, or frozen, waits longer",
            "            self._settled(partition, view, began_ms)\n            return again\n",
            "            return again\n",
        ),
        (
            "G6: each Fetch in a gap that is not settled waits longer",
            "settle_gap(partition, view, read_from)\n            self._settled(partition, view,",
            "settle_gap(partition, view, read_from)\n            self._settled(partition, None,",
        ),
        (
            "G6: each Fetch of a frozen partition waits longer",
            "        if view.frozen or one.asked",
            "        if one.asked",
        ),
        (
            "H17: a Fetch that waits longer than others is given less time for barriers",
            "self._deadline_ms, self._until_ms = deadline_ms, max(deadline_ms, until_ms)",
            "self._deadline_ms, self._until_ms = deadline_ms, until_ms",
        ),
        (
            "G6: each Fetch waits for watermarks that the broker does not give",
            "        if watermarks is None:\n            self._failed(began_ms)\n",
            "",
        ),
    ),
    *FETCH.edits(
        (
            "KIP-368: a barrier is waited for beyond the session",
            "        until_ms = began_ms + int(min(limit.wait_ms(), left_ms))\n",
            "        until_ms = began_ms + limit.wait_ms()\n",
        ),
    ),
    *SPLICE.edits(
        (
            "H15: what was copied and trimmed after the barrier is passed as a hole",
            "    hole_end = min(known.log_start_offset, watermarks.log_start_offset)\n",
            "    hole_end = watermarks.log_start_offset\n",
        ),
        (
            "H15: a hole is asked behind its end, where the broker's log begins by now",
            "Source.HOLE, watermarks, hole_end)",
            "Source.HOLE, watermarks, watermarks.log_start_offset)",
        ),
    ),
    *TIER.edits(
        (
            "H17: a barrier does not read the settings",
            "            await self._settings.barrier(deadline_ms)\n            led = await",
            "            led = await",
        ),
        (
            "H17: of a partition led elsewhere a barrier does not read the settings",
            "        if led is None or led.leader != self._node_id:  # a",
            "        if led is None:  # a",
        ),
        (
            "H17: a topic that was not tiered any more behind the barrier is tiered",
            "        if self._settings.view.topic(led.key.topic_id) is None:\n",
            "        if led is None:\n",
        ),
        (
            "a barrier reads the settings twice",
            "        if led is None or led.leader != self._node_id:  # a",
            "        if topic:  # a",
        ),
    ),
)
