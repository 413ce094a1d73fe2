"""`rlm events` shows the last decisions of the tasks of all services, and follows them."""

import json

import click
import grpc

from rlm.cli.live import pause, until_ended
from rlm.cli.output import human_time, plain, show_json, warn
from rlm.cli.target import Connect, Target, service_options
from rlm.v1 import admin_pb2 as pb
from rsm_plugins.contract.status import error_of_call

_PAUSE_SECONDS = 1.0
_LAST = 50


@click.command()
@click.argument("topic", required=False, default="")
@click.option("--follow", "-f", is_flag=True, help="Go on with new events, until Ctrl-C.")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=_LAST,
    show_default=True,
    help="How many of the past are shown.",
)
@service_options
def events(*, topic: str, follow: bool, last: int, connect: Connect) -> None:
    """Show the last decisions of copy, trim, expiry and cleanup tasks, of TOPIC or of all topics.

    A line says when, at which broker, which task of which partition, what it has come to, and why
    it does no more. Only what has changed is an event. Each service remembers its last 1,000 since
    it began; its log has all of them. With --follow and --json each event is a line of JSON. While
    the asked service does not answer, --follow says so and goes on asking.
    """
    with connect.open() as target:
        request = pb.ListEventsRequest(topic=topic)
        answer = target.ask(target.admin.ListEvents, request)
        if topic and not answer.events:
            target.ask(target.admin.DescribeTopic, pb.DescribeTopicRequest(topic=topic))
        shown = list(answer.events)[-last:] if last else []
        if connect.as_json and not follow:
            show_json({**plain(answer), "events": [plain(one) for one in shown]})
            return
        _show(shown, connect)
        _warn_silent(answer)
        if follow:
            with until_ended():
                _follow(target, request, answer, connect)


def _follow(
    target: Target, request: pb.ListEventsRequest, answer: pb.ListEventsResponse, connect: Connect
) -> None:
    while True:
        _remember(request, answer)
        answer = _next(target, request)
        warn(
            [f"events of broker {one.node_id} are missing" for one in answer.sources if one.has_gap]
        )
        _show(list(answer.events), connect)


def _next(target: Target, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
    """The next answer, after a pause. A service that does not answer is asked until it does."""
    is_silent = False
    while True:
        pause(_PAUSE_SECONDS)
        try:
            answer = target.ask(target.admin.ListEvents, request)
        except grpc.RpcError as failed:
            error = error_of_call(failed, f"service at {target.address}")
            if not error.retriable:
                raise
            if not is_silent:
                warn([f"no events for now: {error}; asking again"])
            is_silent = True
        else:
            if is_silent:
                warn([f"the service at {target.address} answers again"])
            return answer


def _remember(request: pb.ListEventsRequest, answer: pb.ListEventsResponse) -> None:
    """What has been shown of each service. Sources are not shown to every caller."""
    numbers = [(one.node_id, one.number) for one in answer.events]
    numbers += [(one.node_id, one.newest) for one in answer.sources if not one.problem]
    for node_id, number in numbers:
        request.after[node_id] = max(number, request.after.get(node_id, -1))


def _show(shown: list[pb.TaskEvent], connect: Connect) -> None:
    for one in shown:
        click.echo(json.dumps(plain(one)) if connect.as_json else _line(one))


def _line(one: pb.TaskEvent) -> str:
    failed = "FAILED: " if one.failed else ""
    where = f"{one.topic}-{one.partition}"
    return (
        f"{human_time(one.at_ms)}  broker {one.node_id}  {one.task:<7}  {where}  {failed}{one.text}"
    )


def _warn_silent(answer: pb.ListEventsResponse) -> None:
    silent = (one for one in answer.sources if one.problem)
    warn([f"unknown: the events of broker {one.node_id}: {one.problem}" for one in silent])
