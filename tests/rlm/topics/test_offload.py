"""Thresholds of a topic by `enable`: stored, kept, taken back, and refused beside retention."""

import re

import pytest

from kip405.errors import Invalid
from rlm.config.offload import OffloadRule
from rlm.topics.rules import UNSET, RetentionOptions
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import OffloadThresholds
from tests.builders.log_dir import TOPIC
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

WEEK_MS = 604_800_000


def asked(retention_ms: int | None = None, **values: int) -> EnableOptions:
    return EnableOptions(
        retention=RetentionOptions(retention_ms=retention_ms), offload=OffloadThresholds(**values)
    )


async def test_thresholds_stay_until_they_are_changed_or_taken_back() -> None:
    service = ServiceUnderTest(Cluster())
    await service.verbs.enable(TOPIC, asked(copy_lag_ms=5, deletion_lag_ms=7))
    found = await service.verbs.enable(TOPIC, asked(copy_lag_bytes=6))
    assert found.record.offload == OffloadThresholds(
        copy_lag_ms=5, copy_lag_bytes=6, deletion_lag_ms=7
    )
    found = await service.verbs.enable(TOPIC, asked(copy_lag_ms=UNSET))
    assert found.record.offload == OffloadThresholds(copy_lag_bytes=6, deletion_lag_ms=7)
    found = await service.verbs.trim_on(TOPIC, force=False)
    assert found.record.offload == OffloadThresholds(copy_lag_bytes=6, deletion_lag_ms=7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (asked(copy_lag_ms=-3), "remote.copy.lag.ms=-3 is below -1"),
        (asked(copy_lag_bytes=-3), "remote.copy.lag.bytes=-3 is below -1"),
        (asked(deletion_lag_ms=-1), "offload.deletion.lag.ms=-1 is below 0"),
        (asked(copy_lag_ms=WEEK_MS), "must be below retention.ms=604800000"),
        (asked(-1, copy_lag_ms=WEEK_MS), "must be below the brokers' own retention.ms=604800000"),
    ],
)
async def test_what_cannot_be_kept_is_refused_and_nothing_is_written(
    options: EnableOptions, words: str
) -> None:
    cluster = Cluster()
    with pytest.raises(Invalid, match=words):
        await ServiceUnderTest(cluster).verbs.enable(TOPIC, options)
    assert cluster.record() is None


async def test_the_threshold_of_a_rule_is_compared_with_retention_too() -> None:
    rule = OffloadRule(
        topics=re.compile(".*"), thresholds=OffloadThresholds(copy_lag_ms=WEEK_MS + 1)
    )
    service = ServiceUnderTest(Cluster(offload_rules=(rule,)))
    with pytest.raises(Invalid, match=r"\(of offload.rules\) must not be more than local"):
        await service.verbs.enable(TOPIC, EnableOptions())
    found = await service.verbs.enable(TOPIC, asked(copy_lag_ms=0))
    assert found.record.offload.copy_lag_ms == 0
