"""`python -m rlm_sandbox.demo`: options in, exit status out."""

import sys
from pathlib import Path

import click

from rlm.clock import SystemClock
from rlm_sandbox.demo.report import Report, new_console
from rlm_sandbox.demo.stage import Options, Stage


@click.command()
@click.option("--dir", "root", type=click.Path(path_type=Path), help="Where (default: temporary).")
@click.option("--keep", is_flag=True, envvar="KEEP", help="Leave everything up (or KEEP=1).")
@click.option("--size-mib", type=click.IntRange(min=64), default=240, show_default=True)
@click.option("--kafka-home", type=click.Path(path_type=Path), help="Use this Kafka (libs/*.jar).")
@click.option("--store", envvar="STORE", default="local", show_default=True)
@click.option("--spark", is_flag=True, help="Read with Spark: DataFrame, stream, export.")
def main(
    *,
    root: Path | None,
    keep: bool,
    size_mib: int,
    kafka_home: Path | None,
    store: str,
    spark: bool,
) -> None:
    """A real Kafka, real records, trimmed locally and read back whole by three clients."""
    clock = SystemClock()
    options = Options(
        root=root,
        keep=keep,
        size_mib=size_mib,
        kafka_home=kafka_home,
        store=store or "local",
        spark=spark,
    )
    sys.exit(Stage(options, Report(new_console(), clock), clock).play())


if __name__ == "__main__":
    main()
