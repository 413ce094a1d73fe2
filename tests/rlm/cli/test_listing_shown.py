"""A command that reads a store alone shows how far it is listed, where that takes some time."""

import pytest

from rlm.cli.remote_source import ListingShown
from rlm.tasks.store_survey import SurveyProgress
from tests.builders.clock import ManualClock


def test_a_listing_that_takes_long_is_shown_every_five_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    shown = ListingShown(clock)
    for objects in range(1_000, 13_000, 1_000):
        clock.advance(1_000)
        shown.show(SurveyProgress(objects=objects))
    clock.advance(5_000)
    shown.show(SurveyProgress(objects=12_000, partitions=400, partitions_listed=32))
    given = capsys.readouterr()
    assert given.out == ""
    assert given.err.splitlines() == [
        "the store: 5000 objects are listed",
        "the store: 10000 objects are listed",
        "the store: 32 of 400 partitions are listed again",
    ]
