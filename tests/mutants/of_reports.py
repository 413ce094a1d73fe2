"""Planted bugs in what is kept from one report of the partitions to the next (H38)."""

from tests.mutants.edits import Edit, Target

PROBLEMS = Target("rlm/service/partition_problems.py", ("tests/rlm/test_partition_problems.py",))
KEPT = Target("rlm/api/per_partition.py", ("tests/rlm/api/test_per_partition.py",))
STATUSES = Target("rlm/service/statuses.py", ("tests/rlm/service/test_statuses.py",))
MESSAGES = Target("rlm/api/cluster_status.py", ("tests/rlm/api/test_admin_service.py",))
EXPLAINED = Target("rlm/plans/explanation.py", ("tests/rlm/plans/test_explanation.py",))
SAFETY = Target("rlm/plans/safety.py", ("tests/rlm/plans/test_safety.py",))
HEALTH = Target("rlm/api/safety_of_status.py", ("tests/rlm/cli/test_health.py",))
COSTS = Target("rlm/api/costs.py", ("tests/rlm/cli/test_cost.py",))
DOCUMENTS = Target("rlm/service/diagnosis.py", ("tests/rlm/service/test_diagnosis.py",))
PLANS = Target("rlm/api/topic_plans.py", ("tests/rlm/cli/test_plan.py",))
SHORTER = Target("rlm/topics/verbs.py", ("tests/rlm/topics/test_shortening.py",))
CHECK = Target("rlm/topics/verbs.py", ("tests/rlm/topics/test_enable_check.py",))
LEADERSHIP = Target("rlm/broker/leadership.py", ("tests/rlm/broker/test_leadership.py",))

EDITS: tuple[Edit, ...] = (
    *COSTS.edits(
        (
            "G6: the ledger is counted in the event loop",
            "await self._threads.run(_growth, record, ledgers, part_bytes, now_ms)",
            "_growth(record, ledgers, part_bytes, now_ms)",
        ),
        (
            "G6: the ledger is counted for everybody who asks",
            "now_ms - self._counted[0] >= KEPT_MS:",
            "now_ms - self._counted[0] >= 0:",
        ),
    ),
    *DOCUMENTS.edits(
        (
            "secrets in files are not masked in a diagnosis",
            "                yield from _lines_of(value)\n",
            "                yield str(value)\n",
        ),
    ),
    *PLANS.edits(
        (
            "G6: plans wait for one another without a limit",
            "        if self._turns.locked():\n",
            "        if self._turns.locked() and not request.topic:\n",
        ),
    ),
    *PLANS.edits(
        (
            "G6: measures for other services wait without a limit",
            "        if self._waiting >= WAITING_MOST:\n",
            "        if self._waiting >= WAITING_MOST * 10:\n",
        ),
    ),
    *SHORTER.edits(
        (
            "G6: verbs wait for a plan of retention",
            "        async with self._planning:\n",
            "        async with self.lock:\n",
        ),
    ),
    *CHECK.edits(
        (
            "G6: verbs wait for a plan",
            "        seen = await self._see_allowed(name, tier=options.trim)\n        retention",
            "        async with self.lock:\n"
            "            seen = await self._see_allowed(name, tier=options.trim)\n"
            "        retention",
        ),
    ),
    *SAFETY.edits(
        (
            "H38: what is not known is safe",
            "Reason(risk=Risk.AT_RISK, text=text) for text in unknown",
            "Reason(risk=Risk.NONE, text=text) for text in unknown",
        ),
        (
            "H38: a problem of another version is safe",
            "return known.get(word, Risk.AT_RISK)",
            "return known.get(word, Risk.NONE)",
        ),
    ),
    *HEALTH.edits(
        (
            "H38: a service that does not answer is safe",
            "if not service.reachable:",
            "if service.reachable and not service.node_id:",
        ),
        (
            "H38: a partition that nobody has reported is safe",
            "    if row.log_end_offset < 0:\n        return row.last_error or",
            "    if row.log_end_offset < 0:\n        return '' and",
        ),
        (
            "H38: the verdict is safe while no service answers",
            'return safety_verdict((), [f"unknown: {failure}"])',
            "return safety_verdict((), [])",
        ),
    ),
    *EXPLAINED.edits(
        (
            "H38: a copy that is lost is explained as readable",
            "if location is OffsetLocation.REMOTE and copy is not None and copy.problem:",
            "if location is OffsetLocation.REMOTE and copy is None:",
        ),
        (
            "H4: what a freeze withholds is explained as readable",
            "    if view.frozen:\n        return",
            "    if view.frozen and location is OffsetLocation.BOTH:\n        return",
        ),
        (
            "H2: a copy below the remote log start is explained as readable",
            "if view.copy_of_offset is not None and not is_ended:",
            "if view.copy_of_offset is not None:",
        ),
    ),
    *KEPT.edits(
        (
            "H38: a partition is shown as it was at first",
            "changed.update(compress(count(), map(is_not, column, before)))",
            "pass",
        ),
        (
            "H38: what is true for a time only is shown for ever",
            "if min(self._until_ms, default=now_ms) < now_ms:",
            "if False:",
        ),
        (
            "H38: after a change of leadership partitions are shown with each other's values",
            "        if keys != self._keys:\n",
            "        if len(keys) != len(self._keys):\n",
        ),
        (
            "H38: a partition that comes is not examined",
            "self._until_ms = moved(self._until_ms, AT_EACH_REPORT_MS)",
            "self._until_ms = moved(self._until_ms, FOREVER_MS)",
        ),
        (
            "H38: what could not be made is not made by the next report either",
            "        made = [(at,",
            "        self._inputs = inputs\n        made = [(at,",
        ),
        (
            "H38: of a report that could not be made some values are kept",
            "        made = [(at, self._make(*(column[at] for column in inputs))) for at in sorted("
            "changed)]\n",
            "        made = ((at, self._make(*(column[at] for column in inputs))) for at in sorted("
            "changed))\n",
        ),
    ),
    *PROBLEMS.edits(
        *(
            (
                f"H38: {what} does not matter to a partition without problems",
                f"            {source},\n",
                "",
            )
            for source, what in (
                ("self._snapshots.snapshots", "a new snapshot"),
                ("tasks.copy.statuses", "the last copy"),
                ("tasks.trim.statuses", "the last trim"),
                ("tasks.expiry.statuses", "the last expiry"),
                ("tasks.cleanup.statuses", "the last cleanup"),
                ("tasks.copy_pool.last_errors", "a job that fails"),
            )
        ),
        (
            "H38: a lag that was measured is known for ever",
            "        if now_ms <= until_ms:\n",
            "        if now_ms <= FOREVER_MS:\n",
        ),
        (
            "H38: a lag that was measured is shown for ever",
            "            return self._measure(row.key, copy).lag, until_ms",
            "            return self._measure(row.key, copy).lag, FOREVER_MS",
        ),
        (
            "H38: a partition that waits to be copied is not examined again",
            "if found or is_failing or copy is None or copy.behind_since_ms is not None:",
            "if found or is_failing or copy is None:",
        ),
        (
            "H38: a log start that does not move is not examined again",
            "min(self._known_until_ms(copy), self._still_until_ms(trim, now_ms))",
            "self._known_until_ms(copy)",
        ),
        (
            "H38: a lag that nobody measures any more is no problem",
            "min(self._known_until_ms(copy), self._still_until_ms(trim, now_ms))",
            "self._still_until_ms(trim, now_ms)",
        ),
    ),
    *STATUSES.edits(
        (
            "H38: a status keeps an alarm that has ended",
            "before, self._alarms = self._alarms, {}",
            "before = self._alarms",
        ),
        (
            "H38: another leadership has the status of the one before",
            "if snapshot is None or snapshot.led.leader_epoch != row.leader_epoch:",
            "if snapshot is None:",
        ),
    ),
    *MESSAGES.edits(
        (
            "H38: the time until a loss does not pass in the API",
            "FOREVER_MS if status.loss_at_ms is None else AT_EACH_REPORT_MS",
            "FOREVER_MS",
        ),
    ),
    *LEADERSHIP.edits(
        *(
            (
                f"H5: another {name} is not noticed",
                f"        and led.{name} == row.{name}\n",
                "",
            )
            for name in ("leader_epoch", "replicas", "isr")
        ),
        (
            "H5: another leader is not noticed",
            "        led.leader == row.leader\n        and ",
            "        ",
        ),
        (
            "another name of a topic is not noticed",
            "        and led.topic_id_partition.topic == topic.name\n",
            "",
        ),
        (
            "H38: reports show the partitions that were led at first",
            "if self._listed_of is not self.snapshot.partitions:",
            "if self._listed_of is None:",
        ),
    ),
)
