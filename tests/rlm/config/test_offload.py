"""`offload.rules`: what is taken, by either name, and what is refused with its key."""

from typing import Any

import pytest

from kip405.errors import Invalid
from rlm.config.loader import from_mapping
from rlmm.settings_records import OffloadThresholds


def test_kafkas_and_pulsars_names_are_the_same_settings(given: dict[str, Any]) -> None:
    given["offload.deletion.lag.ms"] = 60
    given["offload.rules"] = [
        {"topics": "logs.*", "remote.copy.lag.ms": 5},
        {"topics": "old", "offload.time.ms": 6, "offload.size.bytes": 7},
        {"topics": "kept", "offload.deletion.lag.ms": 8},
    ]
    config = from_mapping(given)
    assert [rule.thresholds for rule in config.offload_rules] == [
        OffloadThresholds(copy_lag_ms=5),
        OffloadThresholds(copy_lag_ms=6, copy_lag_bytes=7),
        OffloadThresholds(deletion_lag_ms=8),
    ]
    assert "logs.*" in config.shown()["offload.rules"]
    assert config.offload_defaults() == OffloadThresholds(
        copy_lag_ms=0, copy_lag_bytes=-1, deletion_lag_ms=60
    )
    patterns = [rule.topics.pattern for rule in config.offload_rules]
    assert patterns == ["logs.*", "old", "kept"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"topics": "a", "remote.copy.lag.ms": -2}, "[0].remote.copy.lag.ms: must be"),
        ({"topics": "a", "offload.time.ms": 1, "remote.copy.lag.ms": 1}, "is another name of"),
        ({"topics": "(", "offload.time.ms": 1}, "[0].topics: '(' is no regular expression"),
        ({"topics": "a"}, "[0].topics: the rule sets nothing"),
        ({"offload.time.ms": 1}, "[0].topics: missing"),
        ({"topics": "a", "offload.tim.ms": 1}, "did you mean offload"),
        ("a", "must be a list of rules"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(
    given: dict[str, Any], rule: Any, words: str
) -> None:
    with pytest.raises(Invalid) as error:
        from_mapping(given | {"offload.rules": [rule]})
    assert str(error.value).startswith("offload.rules")
    assert words in str(error.value)
