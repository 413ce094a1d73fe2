"""What the bytes of a snapshot mean belongs to a number in their layout.

A snapshot is read by the same version of the software alone, but a version is worked on for weeks.
So whoever changes what the fold makes of records, or what the bytes mean, must raise `_MEANING`.
Whoever changes only the histories below replaces the digest.
"""

import hashlib
import random

from rlmm import snapshot
from rlmm.replay import LedgerState
from rlmm.snapshot import LedgerSection, encode_section
from tests.rlmm.builders import point
from tests.rlmm.partition_log import PartitionLog

HISTORIES = 60
OF_MEANING = {3: "e07ca3780c8ce76dbe5f921b93b72464693b9435937074bb922d829b641b0121"}
"""SHA-256 of what the histories become on a little-endian machine, by the number of the meaning."""

WITHOUT_LAYOUTS = 2
"""The last number of versions that take records of other layouts than `kafka` for newer ones."""


def _bytes_of(seed: int) -> bytes:
    """A ledger partition that was compacted before it was read, and one record that was lost."""
    dice = random.Random(seed)
    log = PartitionLog(dice, breaks=True)
    log.append(30)
    log.compact()
    log.append(30)
    state = LedgerState()
    for one, _ in log.now.records[:40]:
        state.apply(one)
    state.go_live(absence_is_known=bool(seed % 2))
    for one, _ in log.now.records[41:]:
        state.apply(one)
    ledger = state.freeze()
    assert ledger is not None
    return b"".join(encode_section(LedgerSection(partition=7, point=point(60, 1), ledger=ledger)))


def test_h03_whoever_changes_what_a_snapshot_means_raises_its_number() -> None:
    digest = hashlib.sha256(b"".join(_bytes_of(seed) for seed in range(HISTORIES))).hexdigest()
    number = int(snapshot.LAYOUT.split()[0])
    assert OF_MEANING.get(number) == digest, (
        "raise _MEANING in rlmm/snapshot.py, and write its number and this digest here: "
        f"{number}, {digest}"
    )


def test_h06_a_version_without_layouts_reads_the_ledger_and_not_our_snapshot() -> None:
    """Records of other layouts are a version of their own, which a snapshot does not have: a
    version that reads one begins beside segments from which the records would keep it away.
    """
    assert int(snapshot.LAYOUT.split()[0]) > WITHOUT_LAYOUTS
