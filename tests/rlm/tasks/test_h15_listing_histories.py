"""An attached reader of a cluster that copies and replaces copies, in random order (H15).

The same seed makes the same history. `RLM_LISTING_SEEDS` is how many there are.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from kip405.errors import Unavailable
from rlmm.ledger import PartitionLedger
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.rlm.tasks.test_h15_listings import Page, Paged, Reader


class Living:
    """A cluster that copies at the end and replaces copies, while it is listed. `end`: what it has
    copied. In one round of the reader no copy is replaced twice, or at once: that may hide both
    from any number of listings.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.store = Random(seed), Paged(Rig(folder), 0)
        self.sizes, self.end = {0: 100}, 100
        self.kept: set[int] = set()
        self.store.pages = self.pages()

    def pages(self) -> Iterator[Page]:
        while True:
            yield 10 * self.random.randrange(self.end // 10 + 20), self.happens

    def happens(self) -> None:
        if self.random.random() < 0.1:
            raise Unavailable("the store is away")
        for _ in range(self.random.randrange(3)):
            self._copy(self.end, 100)
        for start in self.random.sample(sorted(self.sizes), k=min(2, len(self.sizes))):
            if start > 10 and start not in self.kept and start - 10 not in self.sizes:
                self._copy(start - 10, self.sizes[start] + 10)
                del self.sizes[start]
                self.store.remove(start)

    def _copy(self, start: int, size: int) -> None:
        self.store.copy(start, size=size)
        self.sizes[start], self.end = size, max(self.end, start + size)
        self.kept.add(start)

    def is_whole_to(self, ledger: PartitionLedger) -> int:
        """How far the segments of the reader have every record."""
        whole = 0
        for one in sorted(ledger.entries.values(), key=lambda one: one.metadata.start_offset):
            if one.metadata.start_offset <= whole:
                whole = max(whole, one.metadata.next_offset)
        return whole


async def test_h15_over_many_rounds_an_attached_reader_lacks_nothing_and_its_end_never_falls(
    tmp_path: Path,
) -> None:
    rounds = 0
    for seed in range(int(os.environ.get("RLM_LISTING_SEEDS", "40"))):
        living, reader, known = Living(tmp_path / str(seed), seed), Reader(), 0
        for _ in range(6):
            living.kept.clear()
            with suppress(Unavailable):
                await reader.read(living.store)
                ledger = reader.log.state.ledgers[PARTITION.key]
                end = max(one.metadata.next_offset for one in ledger.entries.values())
                if reader.log.doubts(PARTITION.key) == ():
                    assert living.is_whole_to(ledger) == end, seed
                    assert end >= known, seed
                    known, rounds = end, rounds + 1
    assert rounds > 50
