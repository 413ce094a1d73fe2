"""Planted bugs in proxy workers: what passes between them and the core, and who restarts whom."""

from tests.mutants.edits import Edit, Target

_CALLS = ("tests/rlm/workers/test_h24_core_calls.py",)
FRAMES = Target("rlm/workers/frames.py", ("tests/rlm/workers/test_frames.py",))
MESSAGES = Target("rlm/workers/messages.py", ("tests/rlm/workers/test_messages.py",))
VIEWS = Target("rlm/workers/views.py", ("tests/rlm/workers/test_views.py",))
BARRIERS = Target("rlm/workers/views.py", _CALLS)
MIRROR = Target("rlm/workers/mirror.py", _CALLS)
CORE = Target("rlm/workers/core.py", _CALLS)
REMOTE_CORE = Target("rlm/workers/remote_core.py", _CALLS)
CONNECTED = Target("rlm/workers/remote_core.py", ("tests/rlm/workers/test_counts.py",))
COUNTS = Target("rlm/workers/counts.py", ("tests/rlm/workers/test_counts.py",))
QUOTAS = Target("rlm/workers/quotas.py", ("tests/rlm/workers/test_counts.py",))
MEMORY = Target("rlm/workers/records_memory.py", ("tests/rlm/workers/test_records_memory.py",))
SUPERVISOR = Target("rlm/workers/supervisor.py", ("tests/rlm/workers/test_h24_supervisor.py",))

EDITS: tuple[Edit, ...] = (
    *FRAMES.edits(
        (
            "frames that follow the end of a connection are received",
            "while self.is_open and len(self._held)",
            "while len(self._held)",
        ),
        (
            "G10: all that wait for a queue send at once",
            "        while not self._may_write.is_set():\n",
            "        if not self._may_write.is_set():\n",
        ),
    ),
    *MESSAGES.edits(
        (
            "H15: a range without records is lost on the way to a worker",
            "empty=(pb.OffsetRun(start=start, end=end) for start, end in view.empty),",
            "empty=(),",
        ),
        (
            "H25: an error of a later version skips records",
            "return Unavailable(message.message) if kind is None else",
            "return Internal(message.message) if kind is None else",
        ),
        (
            "H24: an error whose text is no Unicode ends the core",
            'return text.encode("utf-8", "backslashreplace").decode("utf-8")',
            "return text",
        ),
    ),
    *VIEWS.edits(
        (
            "H17: workers are ready before the first whole comparison",
            "        self._is_ready = False\n        self._listeners",
            "        self._is_ready = True\n        self._listeners",
        ),
        (
            "H17: what is gone is shown for ever",
            "        self._drop(self._shown.keys() - set(self._source.partitions()))\n",
            "",
        ),
    ),
    *BARRIERS.edits(
        (
            "H17: an answer comes before the view that it carries",
            "        self._show([mirrored], ())\n",
            "",
        ),
    ),
    *MIRROR.edits(
        (
            "H17: a worker keeps the partitions of the core of before",
            "            self._partitions.clear()\n",
            "            pass\n",
        ),
    ),
    *CORE.edits(
        (
            "H24: views fill the memory of the core for a worker that has stopped",
            "if not self.frames.is_full:",
            "if self.frames.is_open:",
        ),
        (
            "H24: a worker that has taken nothing for a while misses views",
            "        if self._has_missed_views and self.frames.is_open:\n",
            "        if self._has_missed_views and self.frames.is_full:\n",
        ),
        (
            "a worker of another protocol is greeted",
            "        if protocol is None:\n",
            "        if protocol == 0:\n",
        ),
        (
            "a call that nobody waits for goes on in the core",
            "            if call is not None:\n                call.cancel()\n",
            "            if call is None:\n                return\n",
        ),
    ),
    *REMOTE_CORE.edits(
        (
            "H24: calls wait for a core that is gone",
            "            self._fail_calls()\n",
            "",
        ),
        (
            "H17: a worker without its core vouches for its views",
            "return self._mirror.ready and self.is_connected",
            "return self._mirror.partition is not None",
        ),
    ),
    *CONNECTED.edits(
        (
            "H24: what was counted goes to a connection that has ended",
            "self._link is not None and self._link.is_open and self._has_greeted",
            "self._link is not None and self._has_greeted",
        ),
    ),
    *COUNTS.edits(
        (
            "H23: historical bytes are counted twice",
            "        self.spliced_by_client.clear()\n",
            "",
        ),
        (
            "a worker that is gone still has remote reads",
            "        self._purgatory.pop(worker, None)\n",
            "        self._purgatory.get(worker)\n",
        ),
    ),
    *QUOTAS.edits(
        (
            "H23: a wait that has ended holds a client",
            "            self._until_ms.pop(one.client_id, None)\n",
            "",
        ),
        (
            "H23: bytes are reported a second late",
            "        self._report()\n",
            "",
        ),
    ),
    *MEMORY.edits(
        (
            "H36: room that a read gets is given to another one first",
            "        self._memory.add(len(raw) - reserved_bytes)\n",
            "        self._memory.add(-reserved_bytes)\n        self._memory.add(len(raw))\n",
        ),
        (
            "H36: a read passes those that wait",
            "if self._waiting or not self._fits(size_bytes):",
            "if not self._fits(size_bytes):",
        ),
        (
            "H36: room of a read that was cancelled is lost",
            "                    self.add(-size_bytes)\n",
            "                    self.add(0)\n",
        ),
    ),
    *SUPERVISOR.edits(
        (
            "H24: a worker ends for a successor that has died",
            "            return bool(await process.stdout.readline())\n",
            "            return (await process.stdout.readline()) is not None\n",
        ),
        (
            "H24: a successor that has taken over is ended",
            "            await self._stop_one(before)\n",
            "            self.end()\n",
        ),
        (
            "H24: a core that was up and refuses later ends the workers",
            "status == _REFUSED_STATUS and not self._has_been_up and ran_ms < _UP_MS",
            "status == _REFUSED_STATUS and ran_ms < _UP_MS",
        ),
        (
            "H24: a child that does not stop is waited for",
            "                process.kill()\n",
            "                process.terminate()\n",
        ),
        (
            "H24: clients wait for a worker that was steady",
            "                if ran_ms >= _STEADY_MS:\n",
            "                if ran_ms > _UP_MS:\n",
        ),
    ),
)
