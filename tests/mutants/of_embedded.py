"""Planted bugs in the embedded service: work on what was left out, a second service of a broker."""

from tests.mutants.edits import Edit, Target

_ASSIGNMENT = Target("rlm/tasks/assignment.py", ("tests/rlm/tasks/test_h05_assignment.py",))
_SCHEDULE = Target("rlm/tasks/schedule.py", ("tests/rlm/tasks/test_schedule.py",))
_TASKS = Target("rlm/service/tasks.py", ("tests/rlm/service/test_h05_left_out.py",))
_BESIDE_A_RIVAL = Target("rlm/service/tasks.py", ("tests/rlm/service/test_h13_rival.py",))
_ROOT = Target("rlm/service/broker_service.py", ("tests/rlm/service/test_h05_left_out.py",))
_MANAGER = Target(
    "rlm/service/remote_log_manager.py", ("tests/rlm/service/test_remote_log_manager.py",)
)

EDITS: tuple[Edit, ...] = (
    *_ASSIGNMENT.edits(
        (
            "H5: what was not added has tasks",
            "return self._partitions is None or led.topic_partition in self._partitions",
            "return True",
        ),
        (
            "H5: what was removed has tasks as before",
            "self._partitions -= frozenset(partitions)",
            "frozenset(partitions)",
        ),
    ),
    *_SCHEDULE.edits(
        (
            "H5: the schedules begin tasks of what was left out",
            "return tuple(filter(self._takes, led))",
            "return led",
        ),
        (
            "H14: files that are held open for what was left out are closed, and records lost",
            "self._forget_others(row.key for row in led)",
            "self._forget_others(row.key for row in led if self._takes(row))",
        ),
    ),
    *_TASKS.edits(
        (
            "H5: a copy that waited when its partition was removed is made",
            "            if self._assignment.holds(led):\n                await run(led)\n",
            "            await run(led)\n",
        ),
        (
            "H5: a trim that waited when its partition was removed is carried out",
            "        if self._assignment.holds(led):\n"
            "            await self._expiration_task.run(led, seen)\n",
            "        await self._expiration_task.run(led, seen)\n",
        ),
        (
            "H5: a call copies what was left out",
            "        self._refuse_left_out(led)\n"
            "        await self.partition_tasks.copy.run(led, request)\n",
            "        await self.partition_tasks.copy.run(led, request)\n",
        ),
        (
            "H5: a command copies what was left out",
            "            self._refuse_left_out(led)\n            await tasks.copy.run(",
            "            await tasks.copy.run(",
        ),
        (
            "H5: a command trims what was left out",
            "            self._refuse_left_out(led)\n            await tasks.trim.run(",
            "            await tasks.trim.run(",
        ),
        (
            "H5: a removal has ended while tasks of its partitions run",
            "while self._is_any_running(partitions):",
            "while self._is_any_running(()):",
        ),
        (
            "H5: a removal does not wait for trims",
            "tasks.copy_pool.running | tasks.cleanup_pool.running",
            "tasks.copy_pool.running",
        ),
        (
            "H38: nobody hears of what was left out",
            "return left_out_findings(self.left_out())",
            "return left_out_findings(())",
        ),
    ),
    *_BESIDE_A_RIVAL.edits(
        (
            "H13: a call copies beside a second service of the node",
            "        self._refuse_rival()\n"
            "        self._refuse_left_out(led)\n"
            "        await self.partition_tasks.copy.run(",
            "        self._refuse_left_out(led)\n        await self.partition_tasks.copy.run(",
        ),
    ),
    *_ROOT.edits(
        (
            "H5: the service of a program works on everything",
            "self._topics.retention, assignment)",
            "self._topics.retention)",
        ),
    ),
    *_MANAGER.edits(
        (
            "H13: a program works for a broker that has a service",
            "stack.enter_context(ServiceLock(str(self._config.state_dir), disks))",
            "ServiceLock(str(self._config.state_dir), disks)",
        ),
        (
            "H13: a program works on the disks of another broker",
            "        check_disks(self._config, disks)\n",
            "",
        ),
        (
            "H24: a service that has ended leaves the program running",
            "        if isinstance(error, asyncio.CancelledError):\n"
            "            await self._stack.__aexit__(kind, error, trace)\n"
            "        else:\n",
            "        if not isinstance(error, asyncio.CancelledError):\n",
        ),
        (
            "a shutdown does not wait for reads under way",
            "                await self._end_reads()\n",
            "                pass\n",
        ),
    ),
)
