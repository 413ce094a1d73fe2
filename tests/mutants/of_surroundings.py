"""Planted bugs in who says which broker and cluster these are: a service beside the wrong one."""

from tests.mutants.edits import Edit, Target

_PROVIDER = Target("rlm/config/provider.py", ("tests/rlm/config/test_provider.py",))
_DIRECTORY = Target("rlm/config/directory.py", ("tests/rlm/config/test_directory.py",))

EDITS: tuple[Edit, ...] = (
    *_PROVIDER.edits(
        (
            "an answer of the environment provider wins over a setting",
            "if key in known and key not in given}",
            "if key in known}",
        ),
        (
            "ZooKeeper without bootstrap servers is passed over",
            "if found.zookeeper and not found.bootstrap_servers:",
            "if not found:",
        ),
    ),
    *_DIRECTORY.edits(
        (
            "the only file is read although it is of another cluster",
            "    if cluster_id is None:\n",
            "    if cluster_id is None or len(found) == 1:\n",
        ),
        (
            "a file may be of another cluster than its name",
            "if own != chosen.cluster_id:",
            "if not own:",
        ),
    ),
)
