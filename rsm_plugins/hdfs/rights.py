"""The least rights of each role in HDFS: owner, group and modes of the store's folders. Pure.

The page docs/reference/store-rights.md comes from `HDFS_RIGHTS` and `commands`. A service owns the
root folder, and a reader, who never writes, is in its group.
"""

from dataclasses import dataclass

ROOT_MODE = 0o750
"""Of the root folder, which an operator makes."""
FOLDER_MODE = 0o755
"""Of folders that the plugin makes, below the umask."""
FILE_MODE = 0o644
"""The same of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsRight:
    """One row: the rights that a role needs on a path, as `hdfs dfs -ls` shows them."""

    path: str
    role: str
    rights: str
    needed_for: str
    without: str


HDFS_RIGHTS: tuple[HdfsRight, ...] = (
    HdfsRight(
        path="each folder above the root",
        role="service, reader",
        rights="--x",
        needed_for="the way to the root",
        without="The store is unavailable.",
    ),
    HdfsRight(
        path="the root",
        role="service",
        rights="rwx",
        needed_for="to write, rename and delete; `~rlm-tmp/` in it",
        without="Nothing is copied, and what has expired stays.",
    ),
    HdfsRight(
        path="the root",
        role="reader",
        rights="r-x",
        needed_for="to list and to find files",
        without="The store is unavailable.",
    ),
    HdfsRight(
        path="folders and files below the root",
        role="service",
        rights="owner",
        needed_for="all of them; it makes them, and nobody else writes there",
        without="What another user has made cannot be deleted.",
    ),
    HdfsRight(
        path="folders and files below the root",
        role="reader",
        rights="r-x, r--",
        needed_for="to read by the group",
        without="Reads of these segments fail.",
    ),
)


def commands(root: str, *, user: str, group: str) -> str:
    """The commands that make the root folder with these rights; the superuser gives them."""
    return (
        f"hdfs dfs -mkdir {root}\n"
        f"hdfs dfs -chown {user}:{group} {root}\n"
        f"hdfs dfs -chmod {ROOT_MODE:o} {root}\n"
    )
