"""Planted bugs where a cancellation is lost, or taken for one that nobody has asked for."""

from tests.mutants.edits import Edit, Target

LIVES = Target("rlm/service/lifetime.py", ("tests/rlm/service/test_keep_running.py",))
LEAVING = Target("kafka_clients/closing_client.py", ("tests/kafka_clients/test_leaving_groups.py",))
READER = Target("rlmm/log_reader.py", ("tests/rlmm/test_silent_brokers.py",))
LIVE = Target("rlm/cli/live.py", ("tests/rlm/cli/test_interrupt.py",))
ENDS = Target("rlmm/end_offsets.py", ("tests/rlmm/test_barrier.py",))
LOG = Target("rlmm/metadata_log.py", ("tests/rlmm/test_parts_of_the_log.py",))
POOL = Target("rlm/tasks/pool.py", ("tests/rlm/tasks/test_pool.py",))

EDITS: tuple[Edit, ...] = (
    *LIVES.edits(
        (
            "a component that ends by an error when the service is stopped is started again",
            "            await _end(name, running)\n            raise\n",
            "            await _end(name, running)\n",
        ),
        (
            "a component that was cancelled by nobody stays dead, without a word",
            '            log.error("component_broke_off", component=name)\n',
            "            return\n",
        ),
    ),
    *READER.edits(
        (
            "an error of a stop takes the place of a cancellation, and the tail goes on",
            "        await end_consumer(self._consumer)\n",
            "        await self._consumer.stop()\n",
        ),
        (
            "a tail whose consumer fetches nothing any more waits for ever, without a word",
            "        if not batches and self._consumer._fetcher._fetch_task.done():\n",
            "        if False:\n",
        ),
    ),
    *ENDS.edits(
        (
            "a question that was cancelled by nobody is never answered, nor any after it",
            'await unless_broken_off(asked, f"end offset of {question.partition}")\n',
            "await asked()\n",
        ),
    ),
    *LOG.edits(
        (
            "H17: a tail that was cancelled by nobody stays dead, and the log goes on",
            """group.create_task(unless_broken_off(part, f"the metadata log's {name}"))\n""",
            "group.create_task(part())\n",
        ),
    ),
    *POOL.edits(
        (
            "a pool that is stopped waits for ever for a worker whose job has failed meanwhile",
            "        while self._workers is not None:",
            "        while True:",
        ),
        (
            "G6: a job that was cancelled by nobody takes its worker with it",
            '            await unless_broken_off(job, "the task")\n',
            "            await job()\n",
        ),
    ),
    *LEAVING.edits(
        (
            "a stop waits for ever for a group that has no coordinator",
            "await asyncio.wait({leaving}, timeout=_LEAVE_S)",
            "await asyncio.wait({leaving})",
        ),
        (
            "a stop that is broken off leaves tasks of aiokafka that go on",
            "            if (rest := getattr(coordinator, name, None)) is not None:\n",
            "            if False:\n",
        ),
    ),
    *LIVE.edits(
        (
            "SIGTERM is taken for an error of what it strikes, and a live command goes on",
            "class Ended(BaseException):",
            "class Ended(Exception):",
        ),
    ),
)
