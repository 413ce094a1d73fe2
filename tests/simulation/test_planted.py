"""The simulation must see each planted bug within 200 seeds: else it shows nothing (H34).

A bug that concerns a story alone is looked for in seeds with that story, and one that few of these
show (one in fifty) in 600 of them.
"""

from itertools import islice

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.planting import Planted
from tests.simulation.seeds import run_seed
from tests.simulation.shown_by import SHOWN_BY, first_that_shows, seeds_of
from tests.simulation.stories import seeds_with


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.name)
def test_h34_planted_bug_is_seen(planted: Planted) -> None:
    if first_that_shows(planted, seeds_of(planted)) is None:
        pytest.fail(f"{planted.name}: not seen in {planted.within} seeds")


def test_a_bug_is_looked_for_in_the_same_seeds_in_another_order() -> None:
    assert SHOWN_BY.keys() <= {one.name for one in PLANTED}, "a bug that is planted no more"
    for planted in PLANTED:
        assert sorted(seeds_of(planted)) == list(islice(seeds_with(planted.among), planted.within))
        assert seeds_of(planted)[0] == SHOWN_BY.get(planted.name, min(seeds_of(planted)))


def test_a_product_without_a_bug_shows_none() -> None:
    sound = Planted(name="none", broken=("",), patches=list)
    assert first_that_shows(sound, range(3)) is None


def test_a_seed_repeats_its_events() -> None:
    assert run_seed(7) == run_seed(7)
