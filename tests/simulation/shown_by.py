"""Seeds that show planted bugs, to be run before the others: this saves time only.

Where a row's seed does not show its bug any more, or a bug has no row, all are run in their order.
`python -m tests.simulation.shown_by` prints the rows anew.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import islice

from tests.simulation.planted import PLANTED
from tests.simulation.planting import Planted
from tests.simulation.seeds import Failure, run_seed
from tests.simulation.stories import seeds_with

SHOWN_BY = {
    "replay not compaction-stable": 35,
    "remote start not durable": 8,
    "stale ledger OOR": 74,
    "unknown outcome as failure": 2,
    "FINISHED after epoch change": 5,
    "tombstone before delete": 49,
    "trim without asking the store": 1,
    "delete before start read back": 7,
    "clock a year ahead": 12,
    "a freeze is not heeded": 55,
    "an unreferenced segment is deleted without cover": 50,
    "a topic is deleted on one broker's word": 9,
    "a topic is deleted without the second occasion": 2,
    "a topic that may not be seen is deleted": 93,
    "a topic ends without the delay": 7,
    "a topic ends by name instead of id": 137,
    "what is kept of a topic is deleted": 2,
    "the end of a topic leaves its settings": 7,
    "a disabled topic's data goes without the delay": 257,
    "a deletion of a disabled topic that was undone goes on": 64,
    "a disabled topic is forgotten before its segments are deleted": 78,
    "a discard does not wait": 128,
    "a discard deletes what the leading log has": 3398,
    "an undo of a discard changes nothing": 11,
    "no lineage in trim bound": 41,
    "sweep without adoption": 74,
}
"""By the names of bugs. One that the first seed shows needs no row."""


def seeds_of(planted: Planted) -> Sequence[int]:
    """Those in which a bug must be seen, the likeliest first."""
    seeds = islice(seeds_with(planted.among), planted.within)
    return sorted(seeds, key=lambda seed: seed != SHOWN_BY.get(planted.name))


def first_that_shows(planted: Planted, seeds: Iterable[int]) -> int | None:
    """The first of the seeds in which a bug is seen; None where none shows it."""
    with planted.applied():
        for seed in seeds:
            try:
                run_seed(seed)
            except Failure as failure:
                if any(text in failure.broken for text in planted.broken):
                    return seed
    return None


def main() -> int:
    """Print a row for each planted bug."""
    for planted in PLANTED:
        print(f"    {planted.name!r}: {first_that_shows(planted, sorted(seeds_of(planted)))},")
    return 0


if __name__ == "__main__":
    sys.exit(main())
