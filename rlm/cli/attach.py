"""`rlm attach`: the store of a cluster becomes readable without that cluster."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.cli.parameters import DURATION

_LEAST_REFRESH_MS = 1_000


@click.command()
@click.option(
    "--from-store", "is_from_store", is_flag=True, help="From the manifests in the stores."
)
@click.option(
    "--config",
    "config",
    required=True,
    type=click.Path(path_type=Path),
    help="YAML file: a reader's settings without those of Kafka.",
)
@click.option(
    "--refresh",
    "refresh_ms",
    type=DURATION,
    metavar="DURATION",
    help="Read new manifests so often, such as 5m: for a cluster that still lives.",
)
@click.option(
    "--settings-backup",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Backup of __rlm_settings, lines of key|value: remote log starts, holes, histories.",
)
@click.option(
    "--topic-id",
    "topic_ids",
    multiple=True,
    metavar="ID",
    help="This topic has its name, if several topics had it. Repeatable.",
)
@click.option(
    "--accept-history",
    "accepted",
    multiple=True,
    metavar="TOPIC-PARTITION",
    help="Serve what the segments show of a partition, although that is doubtful. Repeatable.",
)
def attach(
    *,
    is_from_store: bool,
    config: Path,
    refresh_ms: int | None,
    settings_backup: Path | None,
    topic_ids: Sequence[str],
    accepted: Sequence[str],
) -> None:
    """Serve what the stores of a cluster have, without Kafka, until SIGTERM or Ctrl-C.

    All manifests are read first; /readyz says when that is done. Then the gRPC API answers reads of
    the remote tier, as a service without a broker does, and with proxy.listen Kafka clients read
    there, without groups. Nothing is written or deleted, in no store either. SIGHUP reads the
    settings again. The exit status is 2 if the settings or the stores cannot be used; one line says
    why.
    """
    from rlm.config import load_attached
    from rlm.service.attached_service import AttachOptions, run
    from rlm.workers.inherited import held_hang_ups, ignore_replacement
    from rsm_plugins.store_kinds import require_library

    if not is_from_store:
        raise Invalid("--from-store is missing: it says what is attached")
    if refresh_ms is not None and refresh_ms < _LEAST_REFRESH_MS:
        raise Invalid("--refresh: must be 1s or more")
    options = AttachOptions(
        refresh_ms=refresh_ms,
        settings_backup=settings_backup,
        topic_ids=tuple(map(_topic_id, topic_ids)),
        accepted=frozenset(accepted),
    )
    with held_hang_ups():
        settings = load_attached(config)
        for store in settings.stores:
            require_library(store.kind)
        ignore_replacement()
        run(settings, options, partial(load_attached, config))


def _topic_id(text: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise Invalid(f"--topic-id: {error}") from error
