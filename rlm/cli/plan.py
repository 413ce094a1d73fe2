"""`rlm plan` says what it means to enable topics, and what refuses it; nothing is changed."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
import grpc

from rlm.cli.main import EXIT_FAILED
from rlm.cli.output import human_size, human_wait, plain, show_json, show_table, warn
from rlm.cli.parameters import DURATION, SIZE
from rlm.cli.target import Connect, Target, service_options
from rlm.cli.topic_patterns import is_pattern, matching
from rlm.plans.enabling import PartitionMeasure, PlannedPartition, PlannedTotal, total_of
from rlm.v1 import admin_pb2 as pb
from rsm_plugins.contract.status import error_of_call


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """One topic; `error`: why there is no plan."""

    topic: str
    plan: pb.TopicPlan
    error: str = ""

    @property
    def known(self) -> list[PlannedPartition]:
        return [_planned(row) for row in self.plan.partitions if not row.problem]

    @property
    def unknown(self) -> list[str]:
        """Partitions without figures."""
        rows = (row for row in self.plan.partitions if row.problem)
        return [f"{self.topic}-{row.partition}: {row.problem}" for row in rows]

    @property
    def remark(self) -> str:
        if self.error:
            return f"UNKNOWN: {self.error}"
        return f"REFUSED: {self.plan.refusal}" if self.plan.refusal else ""


@click.command()
@click.argument("pattern", required=False, default=".*")
@click.option("--trim", is_flag=True, help="Plan mode tier: what refuses a trim refuses it too.")
@click.option("--retention", type=DURATION, help="Total: 180d, 12h, 30m, 90s, ms, -1.")
@click.option("--retention-bytes", type=SIZE, help="Total per partition: 2TiB, 10GB, bytes, -1.")
@click.option("--local-retention", type=DURATION, help="On the brokers; -2 = as total.")
@click.option("--local-retention-bytes", type=SIZE, help="On the brokers; -2 = as total.")
@service_options
def plan(
    *,
    pattern: str,
    trim: bool,
    retention: int | None,
    retention_bytes: int | None,
    local_retention: int | None,
    local_retention_bytes: int | None,
    connect: Connect,
) -> int:
    """Say what `rlm topics enable` of the topics that match PATTERN would mean; nothing is changed.

    Per topic and in total: what is to be copied, the objects and requests that write it, how long
    it takes within the copy limits, the memory of the ledger, and what a trim to the local
    retention then frees on all replicas. What refuses a topic is what `rlm topics enable` with the
    same options would say. What is produced meanwhile is not counted.

    PATTERN is a topic, or a regular expression that the whole name must match; without it all
    topics but internal ones are meant. The exit status is 1 where a topic is refused or not known.
    """
    request = pb.EnableTopicRequest(
        trim=trim,
        retention_ms=retention,
        retention_bytes=retention_bytes,
        local_retention_ms=local_retention,
        local_retention_bytes=local_retention_bytes,
    )
    with connect.open() as target:
        names = _names(target, pattern)
        found = [_of_topic(target, request, name, alone=len(names) == 1) for name in names]
    if connect.as_json:
        show_json(_as_json(found))
    else:
        _show(found)
    return EXIT_FAILED if any(one.remark or one.unknown for one in found) else 0


def _names(target: Target, text: str) -> list[str]:
    return [row.topic for row in matching(target, text)] if is_pattern(text) else [text]


def _of_topic(
    target: Target, request: pb.EnableTopicRequest, topic: str, *, alone: bool
) -> _Planned:
    """One topic of several that cannot be planned does not stop the others."""
    enable = pb.EnableTopicRequest()
    enable.CopyFrom(request)
    enable.topic = topic
    try:
        asked = pb.PlanTopicRequest(enable=enable)
        return _Planned(topic=topic, plan=target.ask_until_free(target.admin.PlanTopic, asked))
    except grpc.RpcError as failed:
        error = error_of_call(failed, f"service at {target.address}")
        if alone:
            raise error from failed
        return _Planned(topic=topic, plan=pb.TopicPlan(topic=topic), error=str(error))


def _planned(row: pb.PartitionPlan) -> PlannedPartition:
    return PlannedPartition(
        measure=PartitionMeasure(
            segments=row.segments,
            size_bytes=row.size_bytes,
            local_bytes=row.local_bytes,
            freed_bytes=row.freed_bytes,
            requests=row.requests,
        ),
        leader=row.leader,
        replicas=row.replicas,
        copy_bytes_per_second=row.copy_bytes_per_second,
    )


def _total(found: Iterable[_Planned]) -> PlannedTotal:
    return total_of(row for one in found for row in one.known)


def _as_json(found: list[_Planned]) -> dict[str, Any]:
    topics = [
        {**plain(one.plan), "error": one.error, "total": asdict(_total([one]))} for one in found
    ]
    return {"total": asdict(_total(found)), "topics": topics}


def _show(found: list[_Planned]) -> None:
    rows = [(one.topic, *_cells(_total([one])), one.remark) for one in found]
    if len(found) > 1:
        rows.append(("total", *_cells(_total(found)), _refused(found)))
    headers = ("topic", "partitions", "segments", "to copy", "takes", "objects", "requests")
    show_table((*headers, "ledger memory", "local", "trim frees", "remark"), rows, "")
    for one in found:
        warn([f"{one.topic}: {text}" for text in one.plan.warnings])
        warn([f"unknown, and in no sum: {text}" for text in one.unknown])


def _cells(total: PlannedTotal) -> Iterator[object]:
    yield total.partitions
    yield total.segments
    yield human_size(total.size_bytes)
    yield "-" if total.hours is None else _duration(total.hours)
    yield total.objects
    yield total.requests
    yield human_size(total.ledger_bytes)
    yield human_size(total.local_bytes)
    yield human_size(total.freed_bytes)


def _duration(hours: float) -> str:
    """Of what is to be copied: a second at least."""
    return human_wait(math.ceil(hours * 3_600) * 1_000)


def _refused(found: list[_Planned]) -> str:
    count = sum(bool(one.remark) for one in found)
    return f"{count} of {len(found)} refused or unknown" if count else ""
