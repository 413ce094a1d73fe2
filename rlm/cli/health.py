"""What `rlm status --health` prints: one verdict with its reasons, by what the services answer."""

import click

from kip405.errors import Invalid, RemoteStorageError
from rlm.api.safety_of_status import on_record, unanswered, verdict_of
from rlm.cli.output import show_json
from rlm.cli.target import Connect
from rlm.plans.problems import Risk
from rlm.plans.safety import SafetyVerdict
from rlm.v1 import admin_pb2 as pb

_STATUS = {Risk.NONE: 0, Risk.AT_RISK: 1, Risk.LOST: 2}


def show_health(topic: str, connect: Connect) -> int:
    """Print the verdict; answers the exit status."""
    answer = pb.StatusResponse()
    try:
        with connect.open() as target:
            answer = target.ask(target.admin.Status, pb.StatusRequest(topic=topic))
    except Invalid:
        raise
    except RemoteStorageError as error:
        verdict = unanswered(str(error))
    else:
        verdict = verdict_of(answer)
    _show(verdict, list(on_record(answer)), as_json=connect.as_json)
    return _STATUS[verdict.risk]


def _show(verdict: SafetyVerdict, lost: list[str], *, as_json: bool) -> None:
    if as_json:
        reasons = [{"risk": one.risk.value, "text": one.text} for one in verdict.reasons]
        show_json({"verdict": verdict.words, "reasons": reasons, "on_record": lost})
        return
    click.echo(verdict.words)
    for reason in verdict.reasons:
        click.echo(f"  {reason.risk.value}: {reason.text}")
    for text in lost:
        click.echo(f"  on record: {text}")
