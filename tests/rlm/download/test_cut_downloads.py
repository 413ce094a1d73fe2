"""Copies that overlap or diverge (two leaders) become one log without doubles."""

from pathlib import Path

import pytest

from kip405.batches import batch_headers
from kip405.errors import Invalid
from kip405.indexes import OffsetIndex
from tests.builders.rig import Rig
from tests.kip405.batch_builder import batch
from tests.rlm.download.stored import Work, put


def log(first: int, end: int, *, epoch: int) -> bytes:
    return b"".join(
        batch(base, 10, epoch=epoch, first_ms=1_000 + base, value=b"e%d" % epoch)
        for base in range(first, end, 10)
    )


async def test_h04_overlapping_and_diverging_copies_become_one_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    before = log(0, 60, epoch=5)
    put(rig, 1, before + log(60, 100, epoch=5), {5: 0})
    put(rig, 2, log(30, 60, epoch=5) + log(60, 150, epoch=6), {5: 30, 6: 60})
    with pytest.raises(Invalid, match=r"orders-0: offsets 60 to 99 are doubtful.* epochs 5, 6 "):
        await Work(rig, tmp_path / "out").run()
    assert not (tmp_path / "out").exists()
    work = Work(rig, tmp_path / "out", ["orders-0"])
    (plan,) = await work.run()
    assert [(one.start_offset, one.next_offset) for one in plan.pieces] == [(0, 60), (60, 150)]
    found = work.files()
    logs = b"".join(found[name] for name in sorted(found) if name.endswith(".log"))
    assert logs == before + log(60, 150, epoch=6)
    assert sorted(name for name in found if name.endswith(".log")) == [
        f"{base:020d}.log" for base in (0, 60)
    ]
    assert found["leader-epoch-checkpoint"] == b"0\n2\n5 0\n6 60\n"
    part = found[f"{60:020d}.log"]
    offsets = OffsetIndex(memoryview(found[f"{60:020d}.index"]), 60)
    offsets.check(len(part))
    assert next(batch_headers(part, offsets.lookup(149)))[1].base_offset <= 149
