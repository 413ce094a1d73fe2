"""`rlm serve`: the service beside one broker, or a reader without one."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--role",
    default="broker",
    show_default=True,
    type=click.Choice(["broker", "reader"]),
    help="broker: beside one broker. reader: without any; answers reads of the remote tier.",
)
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="YAML file; docs/reference/settings.md lists all settings.",
)
def serve(*, role: str, path: Path) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Status 2 for a configuration or surroundings that cannot be used; one line says why.
    """
    (_serve_reader if role == "reader" else _serve_broker)(path)


def _serve_broker(path: Path) -> None:
    from rlm.config import load

    config = load(path)
    from rlm.service.broker_service import run

    run(config)


def _serve_reader(path: Path) -> None:
    from rlm.config import load_reader

    config = load_reader(path)
    from rlm.service.reader_service import run

    run(config)
