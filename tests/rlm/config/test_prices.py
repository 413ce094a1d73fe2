"""Prices of `rlm cost` are settings; none has a default."""

from pathlib import Path
from typing import Any

import pytest

from rlm.plans.costs import Prices
from rlm.service.reports import prices_of
from tests.rlm.config.test_config import read, refusal

GIVEN = {
    "cost.currency": "EUR",
    "cost.storage.per.gib.month": 0.023,
    "cost.put.per.1000": 0,
    "cost.get.per.1000": 0.0004,
    "cost.local.per.gib.month": 1,
}


def test_prices_are_taken_and_zero_is_a_price(tmp_path: Path, given: dict[str, Any]) -> None:
    assert prices_of(read(tmp_path, given)) == Prices()
    assert prices_of(read(tmp_path, given | GIVEN)) == Prices(
        currency="EUR", storage_gib_month=0.023, put_1000=0, get_1000=0.0004, local_gib_month=1
    )
    without = {key: value for key, value in GIVEN.items() if key != "cost.local.per.gib.month"}
    assert prices_of(read(tmp_path, given | without)).missing == ("cost.local.per.gib.month",)


@pytest.mark.parametrize("key", [key for key in GIVEN if key != "cost.currency"])
def test_a_negative_price_is_refused(tmp_path: Path, given: dict[str, Any], key: str) -> None:
    assert key in refusal(tmp_path, given | {key: -1})


def test_each_missing_price_is_named_by_a_setting() -> None:
    assert set(Prices().missing) == GIVEN.keys() - {"cost.currency"}
