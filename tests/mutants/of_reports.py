"""Planted bugs in what is kept from one report of the partitions to the next (H38)."""

from tests.mutants.edits import Edit, Target

PROBLEMS = Target("rlm/service/partition_problems.py", ("tests/rlm/test_partition_problems.py",))
MESSAGES = Target("rlm/api/cluster_status.py", ("tests/rlm/api/test_admin_service.py",))
LEADERSHIP = Target("rlm/broker/leadership.py", ("tests/rlm/broker/test_leadership.py",))

EDITS: tuple[Edit, ...] = (
    *PROBLEMS.edits(
        *(
            (
                f"H38: {what} does not matter to a partition without problems",
                f"            and self.{name} is other.{name}\n",
                "",
            )
            for name, what in (
                ("snapshot", "a new snapshot"),
                ("copy", "the last copy"),
                ("trim", "the last trim"),
                ("expiry", "the last expiry"),
                ("cleanup", "the last cleanup"),
            )
        ),
        (
            "H38: a partition without problems keeps its lag for ever",
            "calm is not None and now_ms <= calm.until_ms and calm",
            "calm is not None and calm",
        ),
        (
            "H38: a lag that was measured is known for ever",
            "if copy is not None and now_ms <= self._known_until_ms(copy):",
            "if copy is not None:",
        ),
        (
            "H38: a job that fails does not matter to a partition without problems",
            "if key in failing or not self._is_calm",
            "if not self._is_calm",
        ),
        (
            "H38: a partition that waits to be copied is not examined again",
            "if copy is not None and copy.behind_since_ms is None and not found:",
            "if copy is not None and not found:",
        ),
        (
            "H38: a log start that does not move is not examined again",
            "until_ms = min(self._known_until_ms(copy), self._still_until_ms(trim, now_ms))",
            "until_ms = self._known_until_ms(copy)",
        ),
    ),
    *MESSAGES.edits(
        (
            "H38: scrapes and the API show a partition as it was at first",
            "if known is None or known[0] is not status:",
            "if known is None:",
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
            "if self._listed_of is not self.snapshot:",
            "if self._listed_of is None:",
        ),
    ),
)
