"""Seeds: nothing is lost, doubled, trimmed early, deleted early or left behind (H31, H34).

CI runs 400 seeds in chunks, `make long` 100,000; SEED=n repeats one. A failure prints its seed,
what happened, and the invariant that is broken. The long run keeps its counts under bench/results/.
"""

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from bench.machine import commit, load_in_words, machine_in_words
from tests.simulation.seeds import run_seed

_RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
_CHUNK = 50
_CHUNKS = 8
_LONG_SEEDS = 100_000
_EXPECTED = (
    "pause",
    "kill",
    "unclean election",
    "clean election",
    "follower cut off",
    "compaction",
    "ledger tail loss",
    "404 after FINISHED",
    "store outage",
    "clock jump",
    "lost ack",
    "late DeleteRecords",
)


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_h31_all_is_read_once_and_equal_whatever_happens(chunk: int) -> None:
    """Every kind of event happens in each chunk, too: else the chunk shows little."""
    if "SEED" in os.environ:
        if chunk == 0:
            run_seed(int(os.environ["SEED"]))
        return
    counts = _run(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))
    assert [name for name in _EXPECTED if not counts[name]] == []


@pytest.mark.long
@pytest.mark.timeout(8 * 3_600)
def test_h31_many_seeds() -> None:
    began_s = time.monotonic()
    counts = _run(range(1_000_000, 1_000_000 + _LONG_SEEDS))
    _keep(counts, round(time.monotonic() - began_s))


def _run(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += run_seed(seed)
    return counts


def _keep(counts: Counter[str], duration_s: int) -> None:
    _RESULTS.mkdir(parents=True, exist_ok=True)
    content = {
        "commit": commit(),
        "machine": machine_in_words(),
        "load": load_in_words(),
        "seeds": _LONG_SEEDS,
        "duration_s": duration_s,
        "events": dict(sorted(counts.items())),
    }
    path = _RESULTS / f"simulation-{time.strftime('%Y-%m-%d')}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
