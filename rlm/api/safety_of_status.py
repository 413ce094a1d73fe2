"""The verdict of a status answer: what `rlm status --health` and the console say of the data.

The rules are those of rlm.plans.safety; this module reads their inputs from the message. Commands
import it, so it imports nothing of services.
"""

from collections.abc import Iterator

from rlm.plans.safety import Reason, SafetyVerdict, risk_of, safety_verdict
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2


def verdict_of(answer: pb.StatusResponse) -> SafetyVerdict:
    """By the problems of all services, and by what the answer does not say."""
    return safety_verdict(map(_reason, answer.problems), _unknown(answer))


def unanswered(failure: str) -> SafetyVerdict:
    """Where nobody has answered, and why."""
    return safety_verdict((), [f"unknown: {failure}"])


def on_record(answer: pb.StatusResponse) -> Iterator[str]:
    """Losses of the past, which no verdict can change."""
    for row in answer.partitions:
        if row.holes:
            where = f"{row.topic}-{row.partition}"
            yield f"{where}: {row.hole_offsets} offsets are lost, in {row.holes} holes"


def _reason(problem: pb.Problem) -> Reason:
    text = f"{problem.subject}: {problem.text} [{problem.kind}]"
    return Reason(risk=risk_of(problem.risk), text=text)


def _unknown(answer: pb.StatusResponse) -> Iterator[str]:
    """What the answer does not say."""
    if not answer.services:
        yield "unknown: services and stores are not shown to this caller"
    for service in answer.services:
        if not service.reachable:
            why = "; ".join(service.problems)
            yield f"unknown: the service of broker {service.node_id} does not answer: {why}"
        elif not service.health:
            yield f"unknown: the service of broker {service.node_id} does not say how it is"
    for row in answer.partitions:
        if why := _why_unknown(row):
            yield f"unknown: {row.topic}-{row.partition}: {why}"


def _why_unknown(row: fetch_pb2.PartitionDescription) -> str:
    """Empty = it is known."""
    if row.log_end_offset < 0:
        return row.last_error or "its leader's service has not examined it yet"
    if not row.HasField("lag_bytes"):
        return "what is left to copy is not known"
    return ""
