"""Random lives of one service, one after the other, over a ledger that changes meanwhile (H3, H42).

Each life begins with what the one before left: a snapshot of the ledger and the file of read
positions, either as old as they happen to be. Leaders change, also with the loss of the end, and
deposed ones answer; records are compacted, also tombstones; the cluster is restored from a backup.

- Who has no doubt and no loss knows exactly what a replay of every record says.
- What anybody had read and is lost is found out as soon as the leader answers, and nothing else is
  called lost.
- Every life becomes ready once the leader answers.

`LEDGER_CHAINS=1000` runs so many seeds, `LEDGER_CHAINS=17:18` one of them.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence

import pytest
import structlog

from kip405.ids import TopicPartition
from rlmm.leader_answers import ReadPosition
from rlmm.replay import LedgerState
from rlmm.snapshot import LedgerSection, decode_section, encode_section
from tests.rlmm.histories import fold
from tests.rlmm.ledger_process import NUMBER, PARTITION, Process
from tests.rlmm.partition_log import PartitionLog

SEEDS = 200
_RARE = (322, 405, 492, 537, 670, 787, 1088)
"""More seeds. 322: the end of what a replay has read is lost, and the reader goes on with the next
leader. The others: an end is lost, nothing is written, and only a deposed leader answers. Nobody
became ready, or the loss was not found out.
"""
LIVES = 7
_TURNS = 300
_LIMIT_S = 240
"""A chain takes milliseconds; only one that hangs reaches this."""
_SLOW_MS = 3_600_000
_MUST_HAPPEN = (
    "checked",
    "resumed",
    "begun again",
    "loss reported",
    "tombstone gone",
    "records from  on were compacted away",
    "the record at  was compacted away",
    "the record at  is another one now",
    "epoch  was read up to , ends at ",
    "no leader confirms epoch  up to ",
)
"""Otherwise the lives show nothing; reasons without their numbers."""


class Chain:
    """The state dir of a service, and the ledger."""

    def __init__(self, seed: int, *, breaks: bool) -> None:
        self.dice = random.Random(seed)
        self.log = PartitionLog(self.dice, breaks=breaks)
        self.snapshot: bytes | None = None
        self.remembered: dict[TopicPartition, ReadPosition] = {}
        self.seen: Counter[str] = Counter()
        self.log.append(self.dice.randint(1, 6))

    async def run(self) -> Counter[str]:
        for _ in range(LIVES):
            await Life(self).run()
            self.happen()
            what = self.dice.random()
            if what < 0.3:
                self.happen()
            elif what < 0.55:
                self.log.back_up()
            elif what < 0.7:
                self.log.restore()
                self.log.append(self.dice.randint(0, 20))
        self.seen["tombstone gone"] += len(self.log.tombstones_gone)
        self.seen["end lost"] += len(self.log.losses)
        return self.seen

    def end_loss(self) -> None:
        """What an operator does: see "Lost ledger or settings records" in docs/operate.md."""
        self.remembered, self.snapshot = {}, None
        self.log.is_restored = False

    def happen(self) -> None:
        for _ in range(self.dice.randint(0, 4)):
            what = self.dice.random()
            if what < 0.4:
                self.log.append(self.dice.randint(1, 5))
            elif what < 0.6:
                self.log.elect(self.dice.randint(1, 5) if what < 0.48 else 0)
                self.log.append(self.dice.randint(0, 9))
            else:
                self.log.compact()


class Life:
    """One process of the chain, from its start to its end."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.dice, self.log = chain, chain.dice, chain.log
        self.process = Process(chain.log, chain.remembered)
        self.tail = self.process.tail
        self.evidence = [(one.position, one.leader_epoch) for one in chain.remembered.values()]
        self.is_restored = chain.log.is_restored
        self.has_lost = False
        """The ledger was cut below what this process has read."""
        self.is_stopped = False
        """By an operator, who ends a loss."""
        self.has_missed = False
        """A tombstone was compacted away before this process had read it. Nothing tells it so, but
        it leaves nothing of what it knows to the next one.
        """
        if chain.snapshot is not None:
            section = decode_section(chain.snapshot)
            self.process.resume(section.point, LedgerState.of(section.ledger))
            self.evidence.append((section.point.position, section.point.leader_epoch))

    async def run(self) -> None:
        self._maybe_stale(0.4)
        tasks = [asyncio.ensure_future(self.tail.run())]
        if self.dice.random() < 0.5:
            tasks.append(asyncio.ensure_future(self.tail.run_verifier()))
        try:
            await self._replay()
            self.process.manager.go_live(_SLOW_MS if self.has_missed else 0)
            for _ in range(self.dice.randint(1, 3)):
                if self.dice.random() < 0.4:
                    await self._check()
                self._leave()
                self._happen()
                self._maybe_stale(0.5)
                await _turns(self.dice.choice([0, 3, 60]))
                self._leave()
            if self.dice.random() < 0.6:
                await self._check()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _maybe_stale(self, chance: float) -> None:
        if self.dice.random() > chance:
            self.log.deposed = None
        self.log.away = self.dice.random() < 0.1

    async def _replay(self) -> None:
        caught_up = asyncio.ensure_future(self.tail.wait_caught_up())
        happens_at = self.dice.randint(0, 12)
        for turn in range(_TURNS):
            if turn == happens_at:
                self._happen()
            await asyncio.sleep(0)
            if caught_up.done():
                return
        self.log.deposed, self.log.away = None, False
        for _ in range(_TURNS):
            await self.tail.verify()
            await _turns(10)
            if caught_up.done():
                self.chain.seen["ready once the leader answered"] += 1
                return
        caught_up.cancel()
        raise AssertionError(f"the leader answers, and nobody is ready: {self.tail.doubt()}")

    def _happen(self) -> None:
        losses, gone = len(self.log.losses), len(self.log.tombstones_gone)
        self.chain.happen()
        position = self.tail.position(PARTITION)
        self.has_lost |= any(kept < position for kept in self.log.losses[losses:])
        self.has_missed |= any(offset >= position for offset in self.log.tombstones_gone[gone:])

    async def _check(self) -> None:
        """The leader answers now."""
        self.log.deposed, self.log.away = None, False
        await _turns(60)
        await self.tail.verify()
        await _turns(60)
        await self.tail.verify()
        is_in_doubt = not self.tail.lost and self.tail.doubt([PARTITION]) is not None
        assert self.is_restored or not is_in_doubt, self.tail.doubt()
        self._check_losses(is_in_doubt=is_in_doubt)
        if not (self.tail.lost or is_in_doubt):
            assert self.tail.position(PARTITION) == self.log.now.end
            if not self.has_missed:
                assert self.process.state() == fold(self.log.now.whole)
                self._count()

    def _check_losses(self, *, is_in_doubt: bool) -> None:
        """A restored cluster may use epochs again, or has not come to one that was read yet."""
        found = {**self.tail.lost_before, **self.tail.lost}
        lost = [one for one in self.evidence if self.log.has_lost(*one)]
        if not self.is_restored:
            assert bool(found) == (self.has_lost or bool(lost)), (found, lost)
        if found or is_in_doubt:
            self.chain.seen["loss reported" if found else "doubt reported"] += 1
            self.chain.end_loss()
            self.is_stopped = True

    def _count(self) -> None:
        self.chain.seen["checked"] += 1
        if self.chain.snapshot is not None:
            self.chain.seen["resumed" if not self.process.began else "begun again"] += 1
        for why in self.process.began:
            self.chain.seen["".join(one for one in why if not one.isdigit())] += 1

    def _leave(self) -> None:
        """As the service does: at some time, nothing of a ledger that is damaged."""
        if self.is_stopped or self.tail.lost or self.tail.lost_before:
            return
        if self.dice.random() < 0.6:
            point, ledger = self.tail.resume_point(PARTITION), self.process.manager.freeze(NUMBER)
            self.chain.snapshot = None
            if point is not None and ledger is not None:
                section = LedgerSection(partition=NUMBER, point=point, ledger=ledger)
                self.chain.snapshot = b"".join(encode_section(section))
                self.chain.seen["written"] += 1
        if self.dice.random() < 0.6:
            self.chain.remembered = {
                partition: ReadPosition(
                    position=one.position, leader_epoch=one.leader_epoch, remembered=True
                )
                for partition, one in self.tail.read_positions.items()
            }


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _seeds() -> Sequence[int]:
    wanted = os.environ.get("LEDGER_CHAINS")
    if wanted is None:
        return (*range(SEEDS), *_RARE)
    begin, _, end = wanted.rpartition(":")
    return range(int(begin or 0), int(end))


def _play(seeds: Sequence[int], *, breaks: bool) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += asyncio.run(asyncio.wait_for(Chain(seed, breaks=breaks).run(), _LIMIT_S))
        except AssertionError as error:
            error.add_note(f"again: LEDGER_CHAINS={seed}:{seed + 1}")
            raise
    return seen


@pytest.mark.parametrize("breaks", [True, False])
def test_h42_lives_with_snapshots_know_what_the_ledger_says(breaks: bool) -> None:
    """`breaks`: readers get an error when another broker leads, or go on with it."""
    with structlog.testing.capture_logs():
        seen = _play(_seeds(), breaks=breaks)
    if len(_seeds()) >= SEEDS:
        too_rare = {what for what in _MUST_HAPPEN if seen[what] < len(_seeds()) // 50}
        assert not too_rare, dict(seen)
