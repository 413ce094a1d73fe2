"""`rlm top` shows again and again which partitions lag, what is copied, how fast, and who reads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import click
import grpc

from rlm.cli.live import Terminal, until_ended
from rlm.cli.output import human_rate, human_size, human_time, lag, plain, show_json, show_table
from rlm.cli.target import Connect, Target, service_options
from rlm.clock import SystemClock
from rlm.plans.problems import human_duration
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from rsm_plugins.contract.status import error_of_call

A = TypeVar("A")
_ClientName = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What services answer at one time; times in ms, `taken_ms` monotonic. `unknown`: what they do
    not.
    """

    at_ms: int
    taken_ms: int
    status: pb.StatusResponse
    events: pb.ListEventsResponse
    clients: pb.ListClientsResponse
    unknown: list[str] = field(default_factory=list)

    def copying(self) -> set[tuple[str, int]]:
        """Partitions whose copy task runs."""
        return {
            (one.topic, one.partition)
            for source in self.events.sources
            for one in source.running
            if one.pool == "copy"
        }

    def given(self) -> dict[_ClientName, tuple[int, int]]:
        """Remote and local bytes that each client was given so far."""
        return {
            _name(one): (
                sum(topic.remote_bytes for topic in one.topics),
                sum(topic.local_bytes for topic in one.topics),
            )
            for one in self.clients.clients
        }


@click.command()
@click.argument("topic", required=False, default="")
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between frames.",
)
@click.option(
    "--rows", type=click.IntRange(min=1), default=15, show_default=True, help="Of each table."
)
@service_options
def top(*, topic: str, once: bool, interval: float, rows: int, connect: Connect) -> None:
    """Watch partitions by lag, copies in flight, services and readers.

    The key q, Ctrl-C and SIGTERM end it. Rates of readers are those between two frames, so the
    first frame has none. With --once it ends after that; --json prints one frame, too.
    """
    clock = SystemClock()
    with connect.open() as target:
        before = _taken(target, topic, clock)
        if connect.as_json:
            show_json(_as_json(before))
            return
        if once:
            show_frame(before, None, rows)
            return
        terminal = Terminal()
        with until_ended(), terminal.opened():
            frame: Frame | None = None
            while True:
                frame, before = (before if frame is None else _taken(target, topic, clock)), frame
                terminal.begin_frame()
                show_frame(frame, before, rows)
                terminal.wait(interval)
                before = frame


def _taken(target: Target, topic: str, clock: SystemClock) -> Frame:
    unknown: list[str] = []

    def asked(what: str, call: Callable[[], A], otherwise: A) -> A:
        """Not every caller may ask for all of it."""
        try:
            return call()
        except grpc.RpcError as failed:
            unknown.append(f"{what}: {error_of_call(failed, f'service at {target.address}')}")
            return otherwise

    admin = target.admin
    return Frame(
        at_ms=clock.now_ms(),
        taken_ms=clock.monotonic_ms(),
        status=target.ask(admin.Status, pb.StatusRequest(topic=topic)),
        events=asked(
            "running tasks",
            lambda: target.ask(admin.ListEvents, pb.ListEventsRequest(topic=topic)),
            pb.ListEventsResponse(),
        ),
        clients=asked(
            "readers",
            lambda: target.ask(admin.ListClients, pb.ListClientsRequest(topic=topic)),
            pb.ListClientsResponse(),
        ),
        unknown=unknown,
    )


def show_frame(frame: Frame, before: Frame | None, most: int) -> None:
    """Print one frame; rates of readers are those since `before`."""
    click.echo(_headline(frame))
    click.echo()
    _table(("partition", "leader", "lag", "now", "copy", "trim"), _partitions(frame), most)
    _table(("broker", "health", "copies", "rate", "limit", "left"), _services(frame), most)
    _table(("reader", "client id", "connections", "remote", "local"), _readers(frame, before), most)
    for one in frame.unknown:
        click.echo(f"unknown: {one}")


def _headline(frame: Frame) -> str:
    rows = frame.status.partitions
    known = [row.lag_bytes for row in rows if row.HasField("lag_bytes")]
    unknown = len(rows) - len(known)
    parts = [
        human_time(frame.at_ms),
        f"{len(rows)} partitions",
        f"{human_size(sum(known))} to copy" + (f" and {unknown} unknown" if unknown else ""),
        f"copies in flight: {len(frame.copying())}",
        f"readers: {len(frame.clients.clients)}",
        f"problems: {len(frame.status.problems)}",
    ]
    return ", ".join(parts)


def _table(headers: tuple[str, ...], rows: list[tuple[object, ...]], most: int) -> None:
    if not rows:
        return
    show_table(headers, rows[:most], "")
    if len(rows) > most:
        click.echo(f"and {len(rows) - most} more")
    click.echo()


def _partitions(frame: Frame) -> list[tuple[object, ...]]:
    """What is not known comes first: it may be anything (H38)."""
    copying = frame.copying()

    def order(row: fetch_pb2.PartitionDescription) -> tuple[bool, int, str, int]:
        return row.HasField("lag_bytes"), -row.lag_bytes, row.topic, row.partition

    return [
        (
            f"{row.topic}-{row.partition}",
            row.leader,
            lag(row),
            "copying" if (row.topic, row.partition) in copying else "",
            row.last_error or row.copy_reason,
            row.frozen or row.trim_reason,
        )
        for row in sorted(frame.status.partitions, key=order)
    ]


def _services(frame: Frame) -> list[tuple[object, ...]]:
    running = {
        source.node_id: sum(one.pool == "copy" for one in source.running)
        for source in frame.events.sources
        if not source.problem
    }
    return [
        (one.node_id, one.health or "unknown", running.get(one.node_id, "unknown"), *_speed(one))
        for one in frame.status.services
    ]


def _speed(one: pb.ServiceStatus) -> Iterator[str]:
    copying = one.copying
    for name, words in (
        ("bytes_per_second", human_rate),
        ("limit_bytes_per_second", human_rate),
        ("left_ms", human_duration),
    ):
        yield words(getattr(copying, name)) if copying.HasField(name) else "-"


def _readers(frame: Frame, before: Frame | None) -> list[tuple[object, ...]]:
    """Those that get most first."""
    now, known = frame.given(), {} if before is None else before.given()
    seconds = 0.0 if before is None else (frame.taken_ms - before.taken_ms) / 1_000

    def rate(name: _ClientName, tier: int) -> float | None:
        if name not in known or seconds <= 0:
            return None
        return max(0, now[name][tier] - known[name][tier]) / seconds

    def shown(value: float | None) -> str:
        return "-" if value is None else human_rate(round(value))

    def order(one: pb.KafkaClient) -> tuple[float, int, _ClientName]:
        name = _name(one)
        return -((rate(name, 0) or 0) + (rate(name, 1) or 0)), -sum(now[name]), name

    return [
        (
            one.principal or one.address or "-",
            one.client_id or "-",
            one.connections,
            shown(rate(_name(one), 0)),
            shown(rate(_name(one), 1)),
        )
        for one in sorted(frame.clients.clients, key=order)
    ]


def _name(one: pb.KafkaClient) -> _ClientName:
    return one.principal, one.client_id, one.address


def _as_json(frame: Frame) -> dict[str, object]:
    sources = plain(frame.events)["sources"]
    return {
        "at_ms": frame.at_ms,
        "partitions": plain(frame.status)["partitions"],
        "services": plain(frame.status)["services"],
        "running": [{"node_id": one["node_id"], "tasks": one["running"]} for one in sources],
        "clients": plain(frame.clients)["clients"],
        "unknown": frame.unknown,
    }
