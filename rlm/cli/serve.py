"""`rlm serve`: the service beside one broker."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="YAML file; docs/settings.md lists all settings.",
)
def serve(*, path: Path) -> None:
    """Run the service beside one broker until SIGTERM or Ctrl-C.

    Status 2 for a configuration or surroundings that cannot be used; one line says why.
    """
    from rlm.cli.main import EXIT_WRONG_USE, fail
    from rlm.config import ConfigError, load

    try:
        config = load(path)
    except ConfigError as error:
        fail(str(error), EXIT_WRONG_USE)
    from rlm.service import run

    run(config)
