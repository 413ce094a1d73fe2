"""Planted bugs in answers and requests that flow: what is seen on the way, and what is held."""

from tests.mutants.edits import Edit, Target

_FLOWING = ("tests/rlm/proxy/test_passing.py",)
SCANNER = Target("kafka_protocol/fetch/stream.py", ("tests/kafka_protocol/test_fetch_stream.py",))
WALK = Target("kafka_protocol/topic_walk.py", ("tests/kafka_protocol/test_fetch_stream.py",))
OVERWRITES = Target(
    "kafka_protocol/fetch/splice.py", ("tests/kafka_protocol/test_fetch_stream.py",)
)
PASSING = Target("rlm/proxy/passing.py", _FLOWING)
FETCHES = Target("rlm/proxy/fetch.py", _FLOWING)
PLANS = Target("rlm/proxy/fetch_plan.py", _FLOWING)
RESPONSES = Target("rlm/proxy/responses.py", _FLOWING)
CONNECTION = Target("rlm/proxy/connection.py", _FLOWING)
ENDING = Target("rlm/proxy/connection.py", ("tests/rlm/proxy/test_pass_through.py",))
LEAVING = Target("rlm/proxy/connection.py", ("tests/rlm/proxy/test_connection.py",))
ENDED = Target("rlm/proxy/connection.py", ("tests/rlm/proxy/test_h36_memory.py",))
LOSSES = Target("rlm/remote_log/history.py", ("tests/rlm/test_losses.py",))
SIDES = Target("rlm/proxy/sides.py", _FLOWING)
SPLICING = Target("rlm/proxy/splicing.py", ("tests/rlm/proxy/test_splicing.py",))

_SINGLE_BYTES = ("tests/kafka_protocol/test_single_bytes.py",)
PARTIAL = Target("kafka_protocol/frames.py", _SINGLE_BYTES)
PARTIAL_ANSWER = Target("kafka_protocol/fetch/stream.py", _SINGLE_BYTES)
PARTIAL_PRODUCE = Target("kafka_protocol/produce_request.py", _SINGLE_BYTES)
PARTIAL_ACKS = Target("rlm/proxy/session.py", _SINGLE_BYTES)

PRODUCE = Target("kafka_protocol/produce.py", ("tests/kafka_protocol/test_produce.py",))

EDITS: tuple[Edit, ...] = (
    *PARTIAL.edits(
        (
            "H36: a part that comes in single bytes is read again with each",
            "            self._next_bytes = size_bytes + size_bytes // 8\n",
            "            self._next_bytes = size_bytes\n",
        ),
        (
            "a part that has come whole waits for more bytes for ever",
            "size_bytes >= min(self._next_bytes, whole_bytes)",
            "size_bytes >= self._next_bytes",
        ),
    ),
    *PARTIAL_ANSWER.edits(
        (
            "H36: the head of a Fetch answer is read again with each byte",
            "            self._partial.ended_early(len(view))\n",
            "",
        ),
    ),
    *PARTIAL_PRODUCE.edits(
        (
            "H36: the head of a Produce request is read again with each byte",
            "            self._partial.ended_early(len(view) - passed_bytes)\n",
            "",
        ),
    ),
    *PARTIAL_ACKS.edits(
        (
            "H36: the acks of a Produce request are read again with each byte",
            "            self._partial.ended_early(len(frame))\n",
            "",
        ),
    ),
    *PRODUCE.edits(
        (
            "H22: the errors of a Produce answer are read as the next partition",
            "        if tuple(last) == rest:\n",
            "        if last is not None:\n",
        ),
        (
            "a transactional id is read as the acks",
            "            if _INT16.unpack_from(head, at)[0] != -1:\n                return None\n",
            "",
        ),
    ),
    *WALK.edits(
        (
            "tagged fields behind records are read as the next partition",
            "            self._part = Part.PARTITION_TAGS\n",
            "            self._next_partition()\n",
        ),
    ),
    *SCANNER.edits(
        (
            "G7: a frame that ends too early or too late passes",
            "        if (self._part is Part.END) != (self.left_bytes == 0):\n",
            "        if self._part is Part.END and self.left_bytes < 0:\n",
        ),
    ),
    *OVERWRITES.edits(
        (
            "records stay behind an answer that was replaced in place",
            "    if answered.records_size > 0 or any(map(len, spliced.records)):\n",
            "    if any(map(len, spliced.records)):\n",
        ),
    ),
    *PASSING.edits(
        (
            "H17: an OFFSET_OUT_OF_RANGE flows on before a barrier was",
            "            self._settle(self, partition)\n            return False\n",
            "            self._settle(self, partition)\n            return True\n",
        ),
        (
            "H17: a second attempt lets an OFFSET_OUT_OF_RANGE pass",
            "        if partition.key == self._settling:\n            return False\n",
            "        if partition.key == self._settling:\n            return True\n",
        ),
        (
            "H17: the broker's error is passed on for a remote offset",
            "        if partition.source is Source.BROKER:\n",
            "        if partition.source is not None:\n",
        ),
        (
            "H22: an answer that flows shows the broker's log start",
            "        if patch is not None:\n",
            "        if patch is not None and not answered.records_size:\n",
        ),
        (
            "a remote offset is never answered beside much local data",
            "        self._unanswered.add(partition.key)\n",
            "",
        ),
    ),
    *FETCHES.edits(
        (
            "an answer that stopped at an OFFSET_OUT_OF_RANGE never goes on",
            "        self._upstream.go_on()\n",
            "",
        ),
        (
            "H15: a hole in an answer that flows is not even empty",
            "asked in between\n                not_ready(partition, partition.watermarks)",
            "asked in between\n                drop(partition)",
        ),
    ),
    *PLANS.edits(
        (
            "H37: an answer flows though an epoch may have diverged",
            "            and partition.asked.last_fetched_epoch < 0\n",
            "",
        ),
    ),
    *RESPONSES.edits(
        (
            "bytes that took another way are waited for again",
            "            self._scan.scanner.skip_records(size_bytes)\n",
            "",
        ),
    ),
    *CONNECTION.edits(
        (
            "G10: a broker is read though its client takes nothing",
            "has_room = may.of_broker and not self.client.writer.untaken_bytes",
            "has_room = may.of_broker",
        ),
        (
            "a run goes on for a connection that has ended",
            "                side.splicing.stop()\n",
            "                side.splicing = None\n",
        ),
    ),
    *ENDING.edits(
        (
            "H24: a shutdown cuts off the request that is coming",
            "and not (self._is_draining and not requests.unpassed_bytes)",
            "and not self._is_draining",
        ),
        (
            "H24: a shutdown takes the request behind the one that is coming",
            "return room[: self.requests.unpassed_bytes or None] if self._is_draining else room",
            "return room",
        ),
        (
            "H24: a shutdown cuts off a request that has no answer",
            "        is_done = self._is_draining and self.is_idle and not self._to_broker_bytes\n"
            "        if is_done and not self.requests.unpassed_bytes:\n",
            "        if self._is_draining and self.is_idle:\n",
        ),
    ),
    *LEAVING.edits(
        (
            "an answer waits for ever for what broke off beside it",
            "create_task(or_broken_off(work))",
            "create_task(work)",
        ),
        (
            "G10: a request of a connection that crashed stays until it is collected",
            "                    self._work.stop()\n",
            "",
        ),
        (
            "G10: a broker that connects after the end keeps its socket",
            "        elif self.is_over:  # since the broker was connected\n"
            "            broker.transport.abort()\n",
            "",
        ),
    ),
    *ENDED.edits(
        (
            "H36: what a spliced answer has of the broker is not counted",
            "return min(untaken_bytes, most_bytes) if self.untaken_bytes else untaken_bytes",
            "return 0 if self.untaken_bytes else untaken_bytes",
        ),
        (
            "H36: requests after the end of a connection are kept",
            "        if self.is_over:\n            return\n        self.shared.moved(size_bytes)\n",
            "        self.shared.moved(size_bytes)\n",
        ),
    ),
    *LOSSES.edits(
        (
            "H25: the deadline of a barrier ends the fetch that began a read",
            "            await next_turn()  # a barrier has",
            "            # a barrier has",
        ),
    ),
    *SIDES.edits(
        (
            "G9: who sends no more is not given what is queued",
            "        self.writer.finish()\n        return True\n",
            "        return False\n",
        ),
        (
            "a run is begun again for ever where the source has ended",
            "                self._may_splice = False  # what",
            "                self._may_splice = True  # what",
        ),
    ),
    *SPLICING.edits(
        (
            "bytes of one connection reach another one",
            "        if pipe.held_bytes:\n",
            "        if pipe.held_bytes < 0:\n",
        ),
        (
            "bytes that the target cannot be given are lost",
            "        rest = None if is_complete else self._read_rest()\n",
            '        rest = None if is_complete else b""\n',
        ),
        (
            "a run waits for more after its last byte",
            "                if not self._unread_bytes:\n",
            "                if self._unread_bytes < 0:\n",
        ),
        (
            "more than the run is moved",
            "        size_bytes = min(self._unread_bytes, PIPE_BYTES)\n",
            "        size_bytes = PIPE_BYTES\n",
        ),
    ),
)
