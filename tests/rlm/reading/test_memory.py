"""G10: the memory of the read path is bounded whatever the number of readers, by the books and by
the system's word.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BOUND = 64 << 20
READERS = 200
# Two copies of the ranges being split, requests' buffers, threads, what malloc keeps.
OVERHEAD = 128 << 20
# One load beyond the bound, so that reads that hold parts of batches end.
OVERDRAFT = 2 << 20


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_g10_two_hundred_cold_readers_stay_within_the_bound() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rlm.reading.many_readers", str(BOUND), str(READERS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert seen["read_bytes"] > 2 * (BOUND + OVERHEAD)  # else staying within it were no art
    assert seen["most_held_bytes"] <= BOUND + OVERDRAFT
    assert seen["grown_bytes"] <= BOUND + OVERHEAD
