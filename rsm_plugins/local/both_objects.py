"""Writes the two objects of a segment into a directory, each whole or not at all. Blocking.

Every layout has a large object with the records and a small one with indexes. Both are durable
before either is published, the small one first: what has records has its indexes. A copy that is
given up, or whose attempt was deleted meanwhile, publishes nothing.
"""

from collections.abc import Callable, Sequence

from rsm_plugins.files.durable import make_durable, write_at
from rsm_plugins.files.page_cache import drop_written
from rsm_plugins.files.store_tree import StoreTree
from rsm_plugins.threads import StopFlag


def write_both(
    tree: StoreTree,
    names: Sequence[str],
    write_records: Callable[[int], None],
    indexes: bytes,
    flag: StopFlag,
) -> None:
    """Write and publish both; `names` are of one folder, in the order of `keys.DATA_OBJECTS`.

    `write_records` gets the descriptor of the large file; its errors pass.
    """
    (folder, _, records_file), (_, _, indexes_file) = (name.rpartition("/") for name in names)
    with tree.opened("copy to") as base, tree.new_file(base, folder, records_file) as new:
        indexes_name, indexes_descriptor = new.temporary.create(indexes_file)
        write_records(new.descriptor)
        write_at(indexes_descriptor, indexes, 0)
        make_durable(new.descriptor)
        drop_written(new.descriptor)
        make_durable(indexes_descriptor)
        flag.check()
        new.temporary.publish(indexes_name, indexes_file)
        new.temporary.publish(new.name, records_file)
        new.temporary.make_durable()
