"""`rlm audit`: every byte of the remote segments of topics read and checked, by Spark."""

from typing import Any

import click

from rlm.cli.main import EXIT_FAILED, EXIT_WRONG_USE, fail
from rlm.cli.pipelines import arguments, connection_options, needing_spark
from rlm.cli.target import Connect, service_options
from rlm_spark.errors import ConnectorError
from rlm_spark.offset_specs import OptionError
from rlm_spark.pipelines.arguments import AUDIT


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@arguments(AUDIT)
@service_options
def audit(*, topics: tuple[str, ...], connect: Connect, **values: Any) -> int:
    """Read and check all remote segments of each TOPIC, of every enabled topic without any.

    Sizes, checksums, batches, offsets, epochs, records, indexes, and holes between segments. The
    exit status is 1 where something is wrong.
    """
    with needing_spark():
        from rlm_spark.pipelines.commands import run_audit

    try:
        return run_audit(topics, values, connection_options(connect), connect.as_json)
    except OptionError as error:
        fail(str(error), EXIT_WRONG_USE)
    except ConnectorError as error:
        fail(str(error), EXIT_FAILED)
