"""`rlm status` shows the state of the whole cluster, and ends with status 1 at an alarm."""

from collections.abc import Iterator, Sequence

import click

from kip405.ids import Uuid
from rlm.cli.deletions import show_deletions
from rlm.cli.health import show_health
from rlm.cli.output import (
    human_rate,
    human_size,
    human_time,
    lag,
    offset,
    plain,
    show_json,
    show_table,
)
from rlm.cli.target import Connect, service_options
from rlm.plans.problems import Severity, human_duration
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2


@click.command()
@click.argument("topic", required=False, default="")
@click.option("--health", "health", is_flag=True, help="Only one verdict, and why.")
@service_options
def status(*, topic: str, health: bool, connect: Connect) -> int:
    """Show partitions, services, freezes and problems; only those of TOPIC where it is given.

    The exit status is 1 if there is an alarm. With --health the verdict is SAFE (exit status 0),
    AT RISK (1), also where something is not known, or LOST (2).
    """
    if health:
        return show_health(topic, connect)
    with connect.open() as target:
        answer = target.ask(target.admin.Status, pb.StatusRequest(topic=topic))
    if connect.as_json:
        show_json(plain(answer))
    else:
        _show(answer)
    return int(any(row.severity == Severity.ALARM.value for row in answer.problems))


def _show(answer: pb.StatusResponse) -> None:
    _show_partitions(answer)
    click.echo()
    _show_services(answer)
    _show_readers(answer)
    _show_versions(answer)
    _show_stores(answer)
    _show_log_dirs(answer)
    _show_copying(answer)
    if answer.freezes:
        click.echo()
        show_table(
            ("frozen", "stopped", "by", "since (UTC)", "why"),
            [
                (row.topic or "everything", row.stopped, row.by, human_time(row.since_ms), row.why)
                for row in answer.freezes
            ],
            "",
        )
    if answer.deletions:
        click.echo()
        show_deletions(answer.deletions, "")
    if answer.problems:
        click.echo()
    for row in answer.problems:
        click.echo(_in_words(row))


def _in_words(row: pb.Problem) -> str:
    """One problem on one line. No other table of the answer shows it."""
    nodes = ", ".join(map(str, sorted(row.node_ids)))
    since = f"since {human_time(row.since_ms)} UTC" if row.since_ms >= 0 else "for some time"
    return f"{row.severity}: {row.subject}: {row.text} [{row.kind}, {since}, reported by {nodes}]"


def _show_partitions(answer: pb.StatusResponse) -> None:
    show_table(
        (
            "partition",
            "leader",
            "remote start",
            "remote next",
            "local start",
            "LSO",
            "local end",
            "lag",
            "remark",
        ),
        [
            (
                f"{row.topic}-{row.partition}",
                offset(row.leader),
                offset(row.remote_log_start_offset),
                offset(row.remote_next_offset),
                offset(row.local_log_start_offset),
                offset(row.last_stable_offset),
                offset(row.log_end_offset),
                lag(row),
                _remark(row),
            )
            for row in answer.partitions
        ],
        "no partition of an enabled topic",
    )


def _remark(row: fetch_pb2.PartitionDescription) -> str:
    """The gravest thing that prevents something, and what is lost or soon will be."""
    return "; ".join((*_reasons(row), *_losses(row)))


def _reasons(row: fetch_pb2.PartitionDescription) -> list[str]:
    if row.frozen:
        return [f"FROZEN: {row.frozen}"]
    if row.last_error:
        return [f"error: {row.last_error}"]
    named = (("copy", row.copy_reason), ("trim", row.trim_reason), ("expiry", row.expiry_reason))
    return [f"{name}: {reason}" for name, reason in named if reason]


def _losses(row: fetch_pb2.PartitionDescription) -> Iterator[str]:
    if row.HasField("loss_in_ms"):
        when = human_duration(row.loss_in_ms)
        yield f"the broker deletes records that are not remote in {when}"
    if row.holes:
        yield f"{row.hole_offsets} offsets are lost, in {row.holes} holes"


def _show_services(answer: pb.StatusResponse) -> None:
    show_table(
        ("service", "gRPC", "proxy", "version", "heartbeat", "state"),
        [
            (
                row.node_id,
                row.grpc_address or "-",
                row.proxy_address or "-",
                row.version or "-",
                _heard(row.heartbeat_age_ms),
                _state(row),
            )
            for row in answer.services
        ],
        "no service has said that it lives",
    )


def _show_versions(answer: pb.StatusResponse) -> None:
    """Which of those that live has which version, while these are not the same."""
    found: dict[str, list[str]] = {}
    for service in answer.services:
        if service.alive or service.reachable or not service.HasField("alive"):
            found.setdefault(service.version, []).append(f"service {service.node_id}")
    for reader in answer.readers:
        if not reader.alive:
            continue
        found.setdefault(reader.version, []).append(f"reader {reader.grpc_address}")
    found.pop("", None)  # nobody has said
    if len(found) > 1:
        named = "; ".join(f"{version} ({', '.join(found[version])})" for version in sorted(found))
        click.echo(f"{len(found)} versions: {named}")


def _heard(age_ms: int) -> str:
    return "unknown" if age_ms < 0 else f"{age_ms / 1000:.1f}s ago"


def _show_readers(answer: pb.StatusResponse) -> None:
    """Services without a broker, where there are any."""
    if not answer.readers:
        return
    click.echo()
    show_table(
        ("reader", "version", "heartbeat", "state"),
        [
            (
                row.grpc_address,
                row.version or "-",
                _heard(row.heartbeat_age_ms),
                "well" if row.alive else "SILENT",
            )
            for row in answer.readers
        ],
        "",
    )


def _show_stores(answer: pb.StatusResponse) -> None:
    """Each store once; what is wrong with one is shown with the problems."""
    said: dict[tuple[str, bytes], list[tuple[int, pb.StoreStatus]]] = {}
    for row in answer.services:
        for store in row.stores:
            said.setdefault((store.name, store.store_id), []).append((row.node_id, store))
    click.echo()
    show_table(
        ("store", "id", "plugin", "location", "segments", "state"),
        [
            (
                stores[0][1].name or "(not configured)",
                str(Uuid(store_id)) if store_id else "-",
                stores[0][1].plugin or "-",
                stores[0][1].uri or "-",
                f"{stores[0][1].segments} / {human_size(stores[0][1].size_bytes)}",
                _store_state(stores),
            )
            for (_, store_id), stores in sorted(said.items())
        ],
        "no store is configured: nothing is tiered",
    )


def _store_state(stores: Sequence[tuple[int, pb.StoreStatus]]) -> str:
    away = [str(node) for node, one in stores if one.problem]
    if away:
        return f"not well for {', '.join(away)}"
    return "alarm" if any(one.alarms for _, one in stores) else "well"


def _show_log_dirs(answer: pb.StatusResponse) -> None:
    """Those of every broker whose service reports them."""
    rows = [(row.node_id, log_dir) for row in answer.services for log_dir in row.log_dirs]
    if not rows:
        return
    click.echo()
    show_table(
        ("broker", "log dir", "size", "free", "full in", "no trim may delete"),
        [
            (
                node_id,
                row.path,
                human_size(row.size_bytes) if row.HasField("size_bytes") else "unknown",
                human_size(row.free_bytes) if row.HasField("free_bytes") else "unknown",
                _full_in(row),
                human_size(row.untrimmable_bytes) + _unknown(row),
            )
            for node_id, row in rows
        ],
        "",
    )


def _unknown(row: pb.LogDirStatus | pb.CopyingStatus) -> str:
    """The partitions that are not in a sum."""
    return f" + {row.unmeasured_partitions} unknown" if row.unmeasured_partitions else ""


def _show_copying(answer: pb.StatusResponse) -> None:
    """The services that have something to copy, or may have."""
    rows = [
        (row.node_id, row.copying)
        for row in answer.services
        if row.copying.segments_left or row.copying.unmeasured_partitions
    ]
    if not rows:
        return
    click.echo()
    show_table(
        ("broker", "to copy", "rate", "limit", "time left"),
        [
            (
                node_id,
                f"{row.segments_left} / {human_size(row.bytes_left)}{_unknown(row)}",
                _rate(row, "bytes_per_second"),
                _rate(row, "limit_bytes_per_second"),
                human_duration(row.left_ms) if row.HasField("left_ms") else "unknown",
            )
            for node_id, row in rows
        ],
        "",
    )


def _rate(row: pb.CopyingStatus, field: str) -> str:
    return human_rate(getattr(row, field)) if row.HasField(field) else "unknown"


def _full_in(row: pb.LogDirStatus) -> str:
    if row.HasField("full_in_ms"):
        return human_duration(row.full_in_ms)
    return "does not grow" if row.HasField("growth_bytes_per_second") else "unknown"


def _state(row: pb.ServiceStatus) -> str:
    """The verdict only: what is wrong is shown with the problems."""
    if not row.reachable:
        return "NOT REACHABLE"
    return row.health or ("; ".join(row.problems) or "well")
