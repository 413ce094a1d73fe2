"""Hostile bytes: a clear error or equal rows, no crash, bounded memory. See fuzzing.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Of address space beyond what the interpreter and Arrow had: the limit of a batch (256 MiB) grows
# in steps and is once in the decompressed bytes, once in a column, once more while Python's decoder
# hands it over.
MORE_MIB = 1_280


def fuzz(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rlm_spark.decode.fuzzing", *arguments],
        cwd=ROOT,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
    report: dict[str, object] = json.loads(done.stdout)
    return report


def limit() -> list[str]:
    return ["--more-mib", str(MORE_MIB)] if Path("/proc/self/statm").exists() else []


def test_hostile_bytes_end_in_errors_or_equal_rows() -> None:
    report = fuzz("--cases", "2500", "--bombs", "1", *limit())
    assert report["cases"] == 2502
    ends = report["ends"]
    assert isinstance(ends, dict)
    for kind in ("hostile_records", "hostile_header", "flipped_and_sealed"):
        assert ends[f"{kind}: refused"] > 0, "no longer hostile"
        assert ends[f"{kind}: rows"] > 0, "never gets through"
    assert (ends["bomb: refused"], ends["near_bomb: rows"]) == (1, 1)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_hundred_thousand_hostile_batches(seed: int) -> None:
    report = fuzz("--cases", "30000", "--bombs", "3", "--seed", str(seed), *limit())
    assert report["cases"] == 30_006
