"""Planted bugs in what all brokers are asked before a trim: whether their own retention is off."""

from tests.mutants.edits import Edit, Target

CLUSTER = Target("rlm/tasks/cluster_evidence.py", ("tests/rlm/tasks/test_g1_cluster_retention.py",))
CLUSTER_TRIM = Target("rlm/tasks/trim.py", ("tests/rlm/tasks/test_g1_cluster_retention.py",))
RETENTION = Target(
    "rlm/topics/cluster_retention.py", ("tests/rlm/topics/test_cluster_retention.py",)
)

EDITS: tuple[Edit, ...] = (
    *CLUSTER.edits(
        (
            "G1: a broker that does not answer counts as one whose retention is off",
            "retention_unknown=str(error))",
            "retention_unknown=None)",
        ),
        (
            "brokers are asked about topics that are not trimmed",
            '        if record.mode != "tier" or not record.trim:\n',
            '        if record.mode != "tier" and not record.trim:\n',
        ),
    ),
    *CLUSTER_TRIM.edits(
        (
            "G1: the retention of other brokers is asked once",
            "again = self._decide(fresh, record, answers, plan.planned_at_ms, keep)",
            "again = self._decide(fresh, record, ClusterAnswers(), plan.planned_at_ms, keep)",
        ),
        (
            "H14: a retention that another broker has does not stop a trim",
            "snapshot.topic.retention_bounded or answers.retention_bounded,",
            "snapshot.topic.retention_bounded,",
        ),
        (
            "G1: a doubt about another broker's retention does not stop a trim",
            "            retention_unknown=answers.retention_unknown,\n",
            "            retention_unknown=None,\n",
        ),
    ),
    *RETENTION.edits(
        (
            "G1: without a list of brokers the retention is off",
            "        if not sources:\n",
            "        if sources is None:\n",
        ),
        (
            "H14: a bounded retention is not reported",
            "        if bounded:\n",
            "        if bounded and failures:\n",
        ),
        (
            "G1: the retention of a silent broker is off",
            "        if failures:\n            raise failures[0]\n",
            "",
        ),
        (
            "G1: the retention of a broker that does not know the topic is off",
            '        return Unavailable(f"broker {node_id} does not know the topic yet")\n',
            "        return None\n",
        ),
        (
            "H14: an old answer about retention holds for ever",
            "self._clock.monotonic_ms() >= answer.until_ms:\n",
            "self._clock.monotonic_ms() < 0:\n",
        ),
        (
            "G6: a broker that hangs holds up every partition in turn (retention)",
            "        until_ms = self._clock.monotonic_ms() + _FRESH_MS\n",
            "        until_ms = self._clock.monotonic_ms() + (0 if failure else _FRESH_MS)\n",
        ),
        (
            "each partition asks all brokers for their retention",
            "self._asking.setdefault(topic, asyncio.Lock()):",
            "asyncio.Lock():",
        ),
        (
            "G10: answers about retention are kept for ever",
            "            del self._answers[topic]\n",
            "            pass\n",
        ),
    ),
)
