"""`rlm import pinterest`: what another uploader has stored becomes remote segments, read-only."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kip405.errors import Invalid
from kip405.ids import Uuid
from kip405.process import software_version
from rlm.cli.output import human_size, show_json
from rlm.cli.parameters import CommandGroup
from rlm.clock import SystemClock, new_uuid
from rsm_plugins.threads import FINISH_MS, FileThreads

if TYPE_CHECKING:  # the command loads what it needs
    from rlm.imports.partition import Imported
    from rlm.imports.run import BucketImport, ImportChoices
    from rlm.plans.pinterest_import import ImportPlan
    from rsm_plugins.process.config import PluginSettings

EXIT_LEFT_OUT = 1
_FILE_THREADS = 4
_BUCKET_ROWS = {"s3": "rsm.config.pinterest.bucket", "local": "rsm.config.pinterest.root"}
_ROWS = {
    "prefix": "rsm.config.pinterest.prefix",
    "entropy_bits": "rsm.config.pinterest.entropy.bits",
    "cluster": "rsm.config.pinterest.cluster",
}


@click.group("import", cls=CommandGroup)
def imports() -> None:
    """Import segments that another uploader has stored."""


@imports.command()
@click.option(
    "--plugin-config",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML file of a plugin: our store, for manifests and indexes.",
)
@click.option("--bucket", metavar="NAME", help="Their bucket; a directory if our store is one.")
@click.option("--prefix", help="Prefix of their keys.")
@click.option("--entropy-bits", type=click.IntRange(0, 32), help="Their prefix entropy.")
@click.option("--cluster", metavar="NAME", help="The cluster in their keys.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[=ID]",
    help="Only this topic; ID: the id that the topic has in our cluster. Repeatable.",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--cluster-id", help="Id of our cluster, for a store that has no identity yet.")
@click.option(
    "--accept-gaps", "accepts_gaps", is_flag=True, help="Count offsets that no log has as lost."
)
@click.option(
    "--growing",
    "is_growing",
    is_flag=True,
    help="Their uploader goes on: readers take the end of what was imported for the end so far, "
    "during an import too.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what is to be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def pinterest(
    *,
    plugin_config: Path,
    bucket: str | None,
    topics: Sequence[str],
    partition: int | None,
    cluster_id: str | None,
    accepts_gaps: bool,
    is_growing: bool,
    is_dry: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Make the segments of a bucket of Pinterest's uploader remote segments of ours.

    Each log is read once and every byte is checked. Manifest and indexes go into our store; their
    bucket is only read, now and later. The same command continues after an interruption, and takes
    what was uploaded since. The settings of every store that reads the segments need the same
    rsm.config.pinterest.* values. The exit status is 1 if a partition was refused, was stopped
    by a log, or has segments that must wait, or are above offset.wm without --growing. Readers are
    refused what follows there, until the import goes on or --accept-history names the partition.
    """
    from rlm.imports.run import ImportChoices

    choices = ImportChoices(
        topics=dict(map(_topic, topics)),
        partition=partition,
        cluster_id=cluster_id,
        accepts_gaps=accepts_gaps,
        is_growing=is_growing,
    )
    return asyncio.run(
        _run(plugin_config, {**given, "bucket": bucket}, choices, is_dry=is_dry, as_json=as_json)
    )


async def _run(
    plugin_config: Path,
    given: dict[str, Any],
    choices: "ImportChoices",
    *,
    is_dry: bool,
    as_json: bool,
) -> int:
    from rlm.imports.run import ImportReports

    threads = FileThreads(_FILE_THREADS)
    try:
        settings = await threads.run(_settings, plugin_config)
        async with _opened(settings, given, choices, threads) as work:
            if is_dry:
                plans, _ = await work.plans(await work.existing_identity())
                return _show_plans(plans, as_json=as_json)
            shown: list[ImportPlan] = []
            reports = ImportReports(planned=shown.extend, progress=_show_progress)
            done = await work.run(reports)
            return _show_done(shown, done, is_growing=choices.is_growing, as_json=as_json)
    finally:
        await threads.finish(FINISH_MS)


def _settings(path: Path) -> "PluginSettings":
    from rsm_plugins.process.config import load_settings

    return load_settings(path)


@asynccontextmanager
async def _opened(
    settings: "PluginSettings",
    given: dict[str, Any],
    choices: "ImportChoices",
    threads: FileThreads,
) -> "AsyncIterator[BucketImport]":
    from rlm.imports.run import BucketImport
    from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
    from rsm_plugins.store_kinds import store_kind

    kind = store_kind(settings.kind)
    if settings.kind not in _BUCKET_ROWS:
        raise Invalid(
            f"a store of kind {settings.kind} cannot read their objects; s3 and local can"
        )
    rows = {**_ROWS, "bucket": _BUCKET_ROWS[settings.kind]}
    store = dict(settings.store)
    for option, key in rows.items():
        if given[option] is None:
            continue
        row = kind.settings[key]
        value = row.read(given[option])
        if store[key] not in (row.default, value):
            raise Invalid(
                f"--{option.replace('_', '-')} {value}: the file has {key}: {store[key]}; take one "
                "of the two out"
            )
        store[key] = value
    manager = (await kind.open(store, threads)).manager
    try:
        if not isinstance(manager, ImportingRemoteStorageManager):
            raise Invalid("their bucket and cluster are missing: give --bucket and --cluster")
        yield BucketImport(
            manager,
            choices,
            software=f"kafka-rlm {software_version()}",
            clock=SystemClock(),
            new_uuid=new_uuid,
        )
    finally:
        await manager.close()


def _topic(text: str) -> tuple[str, Uuid | None]:
    topic, equals, topic_id = text.partition("=")
    try:
        return topic, Uuid.parse(topic_id) if equals else None
    except ValueError as error:
        raise Invalid(f"--topic {text}: {error}") from error


def _show_progress(now: "Imported") -> None:
    plan = now.plan
    click.echo(
        f"{plan.partition.topic_partition}: {now.segments} of {len(plan.new)} segments, "
        f"{human_size(now.size_bytes)} of {human_size(plan.new_bytes)}",
        err=True,
    )


def _show_plans(plans: "Sequence[ImportPlan]", *, as_json: bool) -> int:
    rows = [_plan_row(plan) for plan in plans]
    if as_json:
        show_json({"partitions": rows})
    else:
        for plan in plans:
            click.echo(_plan_line(plan))
            _show_warnings(plan.warnings)
    return EXIT_LEFT_OUT if any(plan.refused for plan in plans) else 0


def _plan_line(plan: "ImportPlan") -> str:
    partition = plan.partition.topic_partition
    if plan.refused is not None:
        return f"{partition}: refused: {plan.refused}"
    had = len(plan.logs) - len(plan.new)
    above = f", {plan.beyond} above offset.wm" if plan.beyond else ""
    return (
        f"{partition}: {len(plan.new)} segments to import, {human_size(plan.new_bytes)}; "
        f"{had} imported before{above}"
    )


def _plan_row(plan: "ImportPlan") -> dict[str, Any]:
    return {
        "topic": plan.partition.topic,
        "topic_id": str(plan.partition.topic_id),
        "partition": plan.partition.partition,
        "watermark": plan.watermark,
        "new_segments": len(plan.new),
        "new_bytes": plan.new_bytes,
        "imported_before": len(plan.logs) - len(plan.new),
        "above_watermark": plan.beyond,
        "warnings": list(plan.warnings),
        "refused": plan.refused,
    }


def _show_done(
    plans: "Sequence[ImportPlan]", done: "Sequence[Imported]", *, is_growing: bool, as_json: bool
) -> int:
    by_partition = {one.plan.partition: one for one in done}
    rows = [(plan, by_partition.get(plan.partition)) for plan in plans]
    if as_json:
        show_json({"partitions": [_done_row(*row) for row in rows]})
    else:
        for plan, one in rows:
            click.echo(_done_line(plan, one))
            _show_warnings((*plan.warnings, *(one.warnings if one else ())))
    is_whole = all(
        one is not None and not one.held_back and one.why_not_whole(is_growing=is_growing) is None
        for _, one in rows
    )
    return 0 if is_whole else EXIT_LEFT_OUT


def _done_line(plan: "ImportPlan", done: "Imported | None") -> str:
    if done is None:
        return _plan_line(plan)
    line = f"{plan.partition.topic_partition}: {done.segments} segments imported"
    if not plan.new:
        line = f"{plan.partition.topic_partition}: nothing to do"
    if plan.beyond:
        line += f"; {plan.beyond} above offset.wm are left"
    if done.stopped is not None:
        line += (
            f"; stopped: {done.stopped}. What was imported can be read, and readers are "
            "refused what follows; import again when it is mended"
        )
    if done.held_back:
        line += (
            f"; {done.held_back} wait for the end of the transaction that began at "
            f"{done.open_since}: import again when more was uploaded"
        )
    return line


def _done_row(plan: "ImportPlan", done: "Imported | None") -> dict[str, Any]:
    row = _plan_row(plan)
    if done is not None:
        row["imported"] = done.segments
        row["held_back"] = done.held_back
        row["open_since"] = done.open_since
        row["stopped"] = done.stopped
        row["warnings"] = [*plan.warnings, *done.warnings]
    return row


def _show_warnings(warnings: Sequence[str]) -> None:
    for text in warnings:
        click.echo(f"  warning: {text}")
