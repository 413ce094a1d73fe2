"""What `rlm status --health` prints: one verdict with its reasons, by what the services answer."""

from collections.abc import Iterator

import click

from kip405.errors import Invalid, RemoteStorageError
from rlm.cli.output import show_json
from rlm.cli.target import Connect
from rlm.plans.problems import Risk
from rlm.plans.safety import Reason, SafetyVerdict, risk_of, safety_verdict
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2

_STATUS = {Risk.NONE: 0, Risk.AT_RISK: 1, Risk.LOST: 2}


def show_health(topic: str, connect: Connect) -> int:
    """Print the verdict; answers the exit status."""
    answer, failure = pb.StatusResponse(), ""
    try:
        with connect.open() as target:
            answer = target.ask(target.admin.Status, pb.StatusRequest(topic=topic))
    except Invalid:
        raise
    except RemoteStorageError as error:
        failure = str(error)
    unknown = [f"unknown: {failure}"] if failure else list(_unknown(answer))
    verdict = safety_verdict(map(_reason, answer.problems), unknown)
    _show(verdict, list(_on_record(answer)), as_json=connect.as_json)
    return _STATUS[verdict.risk]


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


def _on_record(answer: pb.StatusResponse) -> Iterator[str]:
    """Losses of the past, which no verdict can change."""
    for row in answer.partitions:
        if row.holes:
            where = f"{row.topic}-{row.partition}"
            yield f"{where}: {row.hole_offsets} offsets are lost, in {row.holes} holes"


def _show(verdict: SafetyVerdict, on_record: list[str], *, as_json: bool) -> None:
    if as_json:
        reasons = [{"risk": one.risk.value, "text": one.text} for one in verdict.reasons]
        show_json({"verdict": verdict.words, "reasons": reasons, "on_record": on_record})
        return
    click.echo(verdict.words)
    for reason in verdict.reasons:
        click.echo(f"  {reason.risk.value}: {reason.text}")
    for text in on_record:
        click.echo(f"  on record: {text}")
