"""Planted bugs in the warnings of what brokers may lose of what they acknowledged (H35)."""

from tests.mutants.edits import Edit, Target

DURABILITY = Target("rlm/topics/rules.py", ("tests/rlm/topics/test_h35_durability.py",))

EDITS: tuple[Edit, ...] = (
    *DURABILITY.edits(
        (
            "H35: nobody is warned of one in-sync replica",
            "    if durability.min_insync_replicas == 1:\n",
            "    if durability.min_insync_replicas == 0:\n",
        ),
        (
            "H35: a topic with one replica is warned of",
            "    if replicas <= 1:\n",
            "    if replicas < 1:\n",
        ),
        (
            "H35: the partition with the fewest replicas speaks for all",
            "    replicas = max((len(one.replicas)",
            "    replicas = min((len(one.replicas)",
        ),
        (
            "H35: nobody is warned of unclean elections",
            "    if durability.unclean_leader_election:\n",
            "    if durability.unclean_leader_election is False:\n",
        ),
        (
            "H38: an unclean election that is not known is off",
            'unclean == "true" if unclean in ("true", "false") else None',
            'unclean == "true"',
        ),
    ),
)
