"""Planted bugs in the bound of the proxy's memory (H36)."""

from tests.mutants.edits import Edit, Target

_VALUES = ("tests/rlm/proxy/test_h36_bound.py",)
_POLLS = ("tests/rlm/proxy/test_h36_long_polls.py",)
MEMORY = Target("rlm/proxy/memory.py", _VALUES)
ACCOUNT = Target("rlm/proxy/account.py", _VALUES)
WORK = Target("rlm/proxy/account.py", _POLLS)
STRANGERS = Target("rlm/proxy/account.py", ("tests/rlm/proxy/test_h36_memory.py",))
CONNECTION = Target("rlm/proxy/connection.py", _POLLS)
FETCH = Target("rlm/proxy/fetch.py", _POLLS)
REPLICAS = Target("rlm/proxy/fetch.py", _POLLS)
WAITS = Target("rlm/proxy/fetch_plan.py", _POLLS)
WAITED_FOR = Target("rlm/proxy/memory.py", _POLLS)
HELD = Target("rlm/proxy/connection.py", ("tests/rlm/proxy/test_held_answers.py",))

EDITS: tuple[Edit, ...] = (
    *MEMORY.edits(
        (
            "H36: an answer that came and went keeps all others from passing the bound",
            "== before_bytes and not is_done:",
            "== before_bytes:",
        ),
        (
            "H36: answers wait for the memory of requests in work, which they would free",
            "max(least_bytes, both_bytes - self.work.held_bytes)",
            "both_bytes - self.work.held_bytes",
        ),
        (
            "H36: work waits for the memory of requests that wait for it",
            "pool = self.work if",
            "pool = self.received if",
        ),
        (
            "H36: answers and work together exceed the bound",
            "min(most_bytes, both_bytes - self.answers.held_bytes)",
            "most_bytes",
        ),
        (
            "all that wait are notified of room that few of them have",
            "                room_bytes -= asked_bytes\n",
            "                pass\n",
        ),
        (
            "H36: one that was notified and has gone keeps its turn",
            "        if self._beyond is holder:\n            self._beyond = None\n        return",
            "        return",
        ),
        (
            "H36: a stranger that sends without end waits, and holds its share for ever",
            "    waits = holder.is_admitted\n",
            "    waits = True\n",
        ),
        (
            "H36: a client waits for ever as the stranger that it was",
            "            if pool.leave(holder):\n                holder.memory_freed()\n",
            "            pool.leave(holder)\n",
        ),
    ),
    *ACCOUNT.edits(
        (
            "H36: what a request is read into counts as no memory",
            "WORK_TIMES = 19\n",
            "WORK_TIMES = 3\n",
        ),
        (
            "H36: a long poll that ends waits for the memory of other answers",
            "        more_bytes = size_bytes - self._covered_bytes\n",
            "        more_bytes = size_bytes\n",
        ),
        (
            "H36: an answer that is asked for again counts twice",
            "        has_answer, self._asked_bytes = self._asked_bytes > 0, 0\n",
            "        has_answer = self._asked_bytes > 0\n",
        ),
        (
            "H36: a login that is due waits for long polls of others",
            "        if api_key in ANSWERED_AT_ONCE:\n            return True\n",
            "",
        ),
        (
            "H36: what the broker answers at once counts as nothing",
            "self._received_bytes = received_bytes + self._kept_bytes + to_broker_bytes",
            "self._received_bytes = received_bytes + to_broker_bytes",
        ),
        (
            "H36: a request in work counts as received, too",
            "ANSWER_TIMES * frame_bytes, 0\n",
            "ANSWER_TIMES * frame_bytes, frame_bytes\n",
        ),
        (
            "H36: a client is not read while its request is in work, and its end is not seen",
            "SMALL_BYTES if has_request and self.is_full else",
            "0 if has_request and self.is_full else",
        ),
    ),
    *WORK.edits(
        (
            "H36: a client that sends ahead keeps the place beyond the bound for ever",
            "        if self._memory.is_work_waited_for:\n",
            "        if self._memory.is_work_waited_for and self._work_bytes:\n",
        ),
        (
            "H36: the work on a request begins whatever is held",
            "        if not self._memory.may_work(self._holder, work_bytes):\n"
            "            return False\n",
            "",
        ),
    ),
    *STRANGERS.edits(
        (
            "H36: a stranger whose answer finds no room waits for ever",
            "        if verdict is Verdict.END:\n            raise too_many_strangers()\n",
            "",
        ),
    ),
    *CONNECTION.edits(
        (
            "H36: a request that waits for its turn has none",
            "            self._take_up(self._put_off)\n",
            "            pass\n",
        ),
        (
            "H36: a client is not read because of an answer that is let go",
            "        if self._account.asks():\n            self.flow()",
            "        if self._account.asks():\n            pass",
        ),
    ),
    *FETCH.edits(
        (
            "H36: an answer is kept while the next one waits for its memory",
            "        self._frame = bytearray()  # the next",
            "        # the next",
        ),
    ),
    *WAITS.edits(
        (
            "H36: a long poll holds the memory of others for as long as its client likes",
            "    if request.max_wait_ms <= _MOST_WAIT_BESIDE_OTHERS_MS:\n",
            "    if request.max_wait_ms <= 2**31:\n",
        ),
        (
            "H36: others wait for long polls for a minute each time",
            "_MOST_WAIT_BESIDE_OTHERS_MS if others_wait() else _MOST_WAIT_MS",
            "_MOST_WAIT_MS",
        ),
    ),
    *REPLICAS.edits(
        (
            "H36: who says that it is a replica holds the memory of others as long as it likes",
            "                max_wait_ms=request.max_wait_ms,\n",
            "                max_wait_ms=None,\n",
        ),
    ),
    *WAITED_FOR.edits(
        (
            "H36: nobody learns that others wait for the memory of requests in work",
            "        return self.work.is_waited_for or self.strangers_work.is_waited_for\n",
            "        return self.strangers_work.is_waited_for\n",
        ),
    ),
    *HELD.edits(
        (
            "H36: a client that takes nothing holds the memory of its request in work for ever",
            "if is_untaken or self.unsent_bytes else 0",
            "if self.unsent_bytes else 0",
        ),
    ),
)
