"""`rlm export`: topics to Parquet files, each record once over any number of runs, by Spark."""

from typing import Any

import click

from rlm.cli.main import EXIT_FAILED, EXIT_WRONG_USE, fail
from rlm.cli.pipelines import arguments, connection_options, needing_spark
from rlm.cli.target import Connect, service_options
from rlm_spark.errors import ConnectorError
from rlm_spark.offset_specs import OptionError
from rlm_spark.pipelines.arguments import EXPORT


@click.command()
@click.argument("topics", nargs=-1, metavar="TOPIC...")
@arguments(EXPORT)
@service_options
def export(*, topics: tuple[str, ...], connect: Connect, **values: Any) -> int:
    """Append what is new of each TOPIC to Parquet files, each record once.

    Files are in DIR/topic=T/date=D, by the record's timestamp in UTC. Broken off in whatever way,
    the same command goes on; called again it appends what has come since.
    """
    with needing_spark():
        from rlm_spark.pipelines.commands import run_export

    needs_service = values["read_mode"] != "kafka_only"
    try:
        connection = connection_options(connect, needs_service=needs_service)
        return run_export(topics, values, connection, connect.as_json)
    except OptionError as error:
        fail(str(error), EXIT_WRONG_USE)
    except ConnectorError as error:
        fail(str(error), EXIT_FAILED)
