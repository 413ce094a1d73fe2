"""Settings of when a service raises an alarm, of its metrics, and of its console. Pure."""

from dataclasses import dataclass

from kip405.settings import FLAG, choice, setting
from rlm.config.common import count, milliseconds
from rlm.config.prices import PricesConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchingConfig(PricesConfig):
    """The part of a broker's service by which it is watched."""

    console_enabled: bool = setting(
        "console.enabled",
        FLAG,
        "Whether /console of http.listen serves the console. Its page is for everybody, its data "
        "for those who show the token that the API asks for, else that of http.token.file.",
        default=True,
    )
    console_actions: bool = setting(
        "console.actions",
        FLAG,
        "Whether the console can copy, verify, set copy limits, undo deletions and freeze, each "
        "with the rights and the line in the audit log that the API has for it.",
        default=False,
    )
    problem_disk_full_ms: int = milliseconds(
        "problem.disk.full.ms",
        86_400_000,
        "A log directory that is full in less time is reported.",
    )
    problem_loss_ms: int = milliseconds(
        "problem.loss.ms",
        14_400_000,
        "How long before the broker's own retention deletes records that are not remote an alarm "
        "says so; at most half of the time for which the broker keeps records.",
    )
    metrics_per_partition: str = setting(
        "metrics.per.partition",
        choice("auto", "on", "off"),
        "Whether metrics of partitions have a sample for each partition that this node leads, or "
        "one for each of its topics. auto: for each partition up to 1,000 of them, above that for "
        "each topic.",
        default="auto",
    )
    problem_copy_intervals: int = count(
        "problem.copy.intervals", 3, "Copy intervals without a copy or a check before an alarm."
    )
    problem_trim_blocked_ms: int = milliseconds(
        "problem.trim.blocked.ms", 900_000, "How long the disk may grow untrimmed before an alarm."
    )
