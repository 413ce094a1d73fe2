"""G10, H36: the memory of a process stays within what memory.max.bytes gives its parts, by the
system's word.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm.config.memory import PROCESS_BYTES

ROOT = Path(__file__).resolve().parents[3]
READERS = 200
MIB = 1 << 20
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")


def held(folder: Path, memory_bytes: int, turns: int) -> dict[str, Any]:
    """What a process took, with 200 readers and ten copy tasks."""
    numbers = map(str, (memory_bytes, READERS, turns))
    done = subprocess.run(
        [sys.executable, "-m", "tests.rlm.service.held_memory", str(folder), *numbers],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_within(seen: dict[str, Any]) -> None:
    """Of memory.max.bytes, proxy and ledger are not used here, so their parts are not counted."""
    allowed = PROCESS_BYTES + seen["chunks"] + seen["copies"]
    assert seen["most_bytes"] <= allowed, seen
    assert seen["read_bytes"] + seen["copied_bytes"] > 2 * allowed  # else it were no art


def test_g10_readers_and_copies_stay_within_the_memory_of_a_small_service(tmp_path: Path) -> None:
    seen = held(tmp_path, 432 * MIB, turns=2)
    assert seen["slots"] == 1
    assert_within(seen)


@pytest.mark.long
@pytest.mark.parametrize(("mib", "turns"), [(432, 20), (784, 20), (1_680, 40)])
def test_g10_readers_and_ten_copies_stay_within_the_memory(
    tmp_path: Path, mib: int, turns: int
) -> None:
    seen = held(tmp_path, mib * MIB, turns)
    assert_within(seen)
    assert seen["slots"] == min(10, seen["copies"] // (24 * MIB))
