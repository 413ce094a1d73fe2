"""Selects where a command reads whole remote partitions: a store alone, or services."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kip405.contracts import RemoteStorageManager
from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.cli.target import Connect
from rlm.clock import Clock, SystemClock
from rlm.download.plan import Source
from rsm_plugins.threads import FileThreads

if TYPE_CHECKING:
    from rlm.tasks.store_survey import SurveyProgress

F = TypeVar("F", bound=Callable[..., Any])
_SHOW_EVERY_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The store to read without a service; without a plugin a service is asked. `accepted`:
    partitions of which what the segments show is right.
    """

    plugin: str | None
    plugin_config: Path | None
    cluster_id: str | None
    topic_id: str | None
    accepted: tuple[str, ...]

    def check(self) -> bool:
        """Whether a store is meant; Invalid where the options contradict each other."""
        if self.plugin is not None and self.plugin_config is not None:
            raise Invalid("--plugin and --plugin-config: give one of them")
        is_store = self.plugin is not None or self.plugin_config is not None
        if not is_store and (self.cluster_id or self.topic_id):
            raise Invalid("--cluster-id and --topic-id go with --plugin or --plugin-config")
        if not is_store and self.accepted:
            raise Invalid(
                "--accept-history goes with --plugin or --plugin-config: a service decides itself"
            )
        return is_store


def store_options(command: F) -> F:
    """Adds the options of `StoreOptions`."""
    options = (
        click.option(
            "--plugin",
            metavar="ADDRESS",
            help="Read manifests and objects of the store plugin at this address, without a "
            "service.",
        ),
        click.option(
            "--plugin-config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The same with a plugin's YAML file: the store is opened in this process.",
        ),
        click.option("--cluster-id", help="Id of the cluster, if it is not the store's own."),
        click.option("--topic-id", help="Id of the topic, if several topics had the name."),
        click.option(
            "--accept-history",
            "accepted",
            multiple=True,
            metavar="TOPIC-PARTITION",
            help="Of a store alone: take what the segments show of a partition, although that is "
            "doubtful. Repeatable.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@asynccontextmanager
async def opened_source(
    connect: Connect, options: StoreOptions, threads: FileThreads, principal: str
) -> AsyncIterator[Source]:
    """The source that the options select; `principal` names the command to a plugin."""
    from rlm.download.sources import ServiceSource, StoreSource

    if not options.check():
        address = await threads.run(connect.chosen_address)
        service = ServiceSource(
            address, connect.metadata(), timeout_s=connect.timeout_s, tls=connect.tls
        )
        try:
            yield service
        finally:
            await service.close()
        return
    topic_id = None if options.topic_id is None else _uuid(options.topic_id)
    async with _store(options, connect, threads, principal) as store:
        yield StoreSource(
            store,
            threads=threads,
            cluster_id=options.cluster_id,
            topic_id=topic_id,
            accepted=options.accepted,
            report=ListingShown(SystemClock()).show,
        )


class ListingShown:
    """How far a store is listed, on standard error: a line now and then, none where it takes no
    time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown_at_ms = clock.monotonic_ms()

    def show(self, now: "SurveyProgress") -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._shown_at_ms >= _SHOW_EVERY_MS:
            self._shown_at_ms = now_ms
            click.echo(f"the store: {now.text}", err=True)


@asynccontextmanager
async def _store(
    options: StoreOptions, connect: Connect, threads: FileThreads, principal: str
) -> AsyncIterator[RemoteStorageManager]:
    """The store behind an address, or opened by its settings in this process."""
    store: RemoteStorageManager
    if options.plugin is not None:
        from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager

        store = GrpcRemoteStorageManager.connect(
            options.plugin,
            principal=connect.principal or principal,
            deadlines=Deadlines(call_ms=round(connect.timeout_s * 1000)),
        )
    else:
        from rsm_plugins.process.config import load_settings
        from rsm_plugins.store_kinds import store_kind

        settings = await threads.run(load_settings, options.plugin_config or Path())
        store = (await store_kind(settings.kind).open(settings.store, threads)).manager
    try:
        yield store
    finally:
        await store.close()


def _uuid(text: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise Invalid(f"--topic-id: {error}") from error
