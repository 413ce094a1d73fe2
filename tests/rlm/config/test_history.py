"""`proxy.history` and its rules: what is taken, and what is refused with its key."""

from typing import Any

import pytest

from kip405.errors import Invalid
from kip405.history import FULL, LOCAL, History, HistoryRule
from rlm.config.loader import from_mapping

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("value", "history"),
    [("full", FULL), ("local", LOCAL), ("7d", 7 * DAY_MS), ("1.5h", 5_400_000), (60_000, 60_000)],
)
def test_words_and_durations(given: dict[str, Any], value: object, history: int) -> None:
    given["proxy.history"] = value
    assert from_mapping(given).proxy_history == history


def test_everything_is_shown_by_default(given: dict[str, Any]) -> None:
    config = from_mapping(given)
    assert (config.proxy_history, config.proxy_history_rules) == (FULL, ())
    assert config.shown()["proxy.history"] == "full"


def test_rules_are_read_in_their_order_and_shown(given: dict[str, Any]) -> None:
    given["proxy.history.rules"] = [
        {"principals": "etl-.*", "history": "7d"},
        {"client.ids": "dash.*", "history": "local"},
    ]
    config = from_mapping(given)
    assert config.proxy_history_rules == (
        HistoryRule(history=History(7 * DAY_MS), principals="etl-.*"),
        HistoryRule(history=LOCAL, client_ids="dash.*"),
    )
    assert config.shown()["proxy.history.rules"] == (
        "principals etl-.* -> 604800000ms; client.ids dash.* -> local"
    )


@pytest.mark.parametrize("value", ["all", "-1", 0, -1, True, "0", 1.5, "1y", 10**17])
def test_what_is_no_history_is_refused(given: dict[str, Any], value: object) -> None:
    given["proxy.history"] = value
    with pytest.raises(Invalid, match=r"proxy\.history: must be full, local, or a duration"):
        from_mapping(given)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("etl", "proxy.history.rules: must be a list of rules"),
        ([{"principals": "a"}], "[0].history: missing"),
        ([{"history": "local"}], "[0].principals: a rule has either this or client.ids"),
        (
            [{"principals": "a", "client.ids": "b", "history": "1d"}],
            "[0].principals: a rule has either",
        ),
        ([{"client.ids": "(", "history": "1d"}], "[0].client.ids: is no regular expression"),
        ([{"topics": "a", "history": "1d"}], "[0].topics: unknown setting"),
        (
            [{"client.ids": "a", "history": days} for days in range(1, 10)],
            "proxy.history.rules: at most 8 different durations, got 9",
        ),
    ],
)
def test_wrong_rules_are_refused(given: dict[str, Any], rules: object, words: str) -> None:
    given["proxy.history.rules"] = rules
    with pytest.raises(Invalid) as refused:
        from_mapping(given)
    assert words in str(refused.value)
