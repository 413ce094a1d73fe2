"""`rlm`: the command line, one group a file."""

import click

from rlm.cli.sandbox import sandbox


@click.group()
def main() -> None:
    """Tiered storage beside the Kafka cluster you already have."""


main.add_command(sandbox)


@main.command()
@click.option("--config", "path", required=True)
def serve(path: str) -> None:
    from pathlib import Path
    from rlm.config import load
    from rlm.service import run
    run(load(Path(path)))


if __name__ == "__main__":
    main()
