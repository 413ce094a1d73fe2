"""The simulation must see each planted bug within 200 seeds: else it shows nothing (H34).

A bug that concerns a story alone is looked for in seeds with that story.
"""

from itertools import islice

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.planting import Planted
from tests.simulation.seeds import Failure, run_seed
from tests.simulation.stories import seeds_with

_SEEDS = 200


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.name)
def test_h34_planted_bug_is_seen(planted: Planted) -> None:
    with planted.applied():
        for seed in islice(seeds_with(planted.among), _SEEDS):
            try:
                run_seed(seed)
            except Failure as failure:
                if any(text in failure.broken for text in planted.broken):
                    return
    pytest.fail(f"{planted.name}: not seen in {_SEEDS} seeds")


def test_a_seed_repeats_its_events() -> None:
    assert run_seed(7) == run_seed(7)
