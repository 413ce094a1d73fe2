"""`rlm`: the command line, one group a file."""

import click

from rlm.cli.sandbox import sandbox


@click.group()
def main() -> None:
    """Tiered storage beside the Kafka cluster you already have."""


main.add_command(sandbox)

if __name__ == "__main__":
    main()
