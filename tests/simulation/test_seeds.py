"""Seeds: nothing is lost, doubled, trimmed early, deleted early or left behind (H31, H34).

CI runs 2,000 seeds in chunks, `make long` 100,000; SEED=n repeats one. A failure prints its seed,
what happened, and the invariant that is broken. The long run keeps its counts under bench/results/.
"""

import os
from collections import Counter
from itertools import islice

import pytest

from tests.simulation.decisions import disabled
from tests.simulation.discards import discarded
from tests.simulation.frozen import frozen
from tests.simulation.many_seeds import results_file, run_all
from tests.simulation.replaced import replaced
from tests.simulation.seeds import run_seed
from tests.simulation.stories import Story, seeds_with

_CHUNK = 125
_CHUNKS = 16
_LONG_SEEDS = range(1_000_000, 1_100_000)
_EXPECTED = (
    "pause",
    "kill",
    "unclean election",
    "clean election",
    "follower cut off",
    "follower with other segment boundaries",
    "compaction",
    "ledger tail loss",
    "ledger rebuilt",
    "404 after FINISHED",
    "store outage",
    "store full",
    "clock jump",
    "lost ack",
    "late DeleteRecords",
    "client DeleteRecords answered",
    "expiry",
    "topic deleted",
    "topic recreated",
    "remote data kept",
    "access lost",
    "broker unaware of the topic",
)
_EXPECTED_OF = (
    (disabled, "disable"),
    (disabled, "disable --delete"),
    (disabled, "disable --delete undone"),
    (disabled, "disabled topic ended"),
    (disabled, "enabled again"),
    (discarded, "partition discard"),
    (discarded, "discarded"),
    (discarded, "discard taken back"),
    (discarded, "former log leads"),
    (frozen, "freeze"),
    (frozen, "unfreeze"),
    (replaced, "unreferenced deleted"),
)
"""What is too rare for every chunk, by the stories that it happens in."""
_SEEDS_OF_A_STORY = 60


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_h31_all_is_read_once_and_equal_whatever_happens(chunk: int) -> None:
    """Every kind of event happens in each chunk, too: else the chunk shows little."""
    if "SEED" in os.environ:
        if chunk == 0:
            run_seed(int(os.environ["SEED"]))
        return
    counts = _run(range(chunk * _CHUNK, (chunk + 1) * _CHUNK))
    assert [name for name in _EXPECTED if not counts[name]] == []


@pytest.mark.parametrize(("story", "event"), _EXPECTED_OF, ids=[event for _, event in _EXPECTED_OF])
def test_h34_each_kind_of_decision_happens(story: Story, event: str) -> None:
    seeds = islice(seeds_with((story,)), _SEEDS_OF_A_STORY)
    assert any(run_seed(seed)[event] for seed in seeds)


@pytest.mark.long
@pytest.mark.timeout(8 * 3_600)
def test_h31_many_seeds() -> None:
    """Goes on with the newest file of results, where that lacks some of the seeds."""
    path = results_file(_LONG_SEEDS)
    assert run_all(_LONG_SEEDS, path, workers=os.cpu_count() or 1, report=lambda _: None) == {}


def _run(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += run_seed(seed)
    return counts
