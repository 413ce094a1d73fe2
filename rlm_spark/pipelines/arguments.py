"""The arguments of `export` and `audit` as a table, for argparse here and for the `rlm` commands.

This module must not know click or Spark.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_spark.pipelines.chunks import COMPRESSIONS, PARTITIONINGS, ChunkSize, ExportError
from rlm_spark.pipelines.spans import bound_options

EXPORT_SUMMARY = "Append what is new of topics to Parquet files, each record once."
AUDIT_SUMMARY = "Read and check every byte of the remote segments of topics."


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One option: a flag where `is_flag`, repeated where `is_many`; `env` where it may come from
    the environment.
    """

    flag: str
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: Any = None
    is_flag: bool = False
    is_many: bool = False
    is_whole: bool = False
    is_required: bool = False
    env: str = ""

    @property
    def name(self) -> str:
        """Its key among the values."""
        return self.flag.removeprefix("--").replace("-", "_")


_MASTER = (
    Argument(
        flag="--master",
        metavar="URL",
        help="Spark to run on; default: this machine's cores, or what spark-submit says.",
    ),
    Argument(
        flag="--cores",
        metavar="N",
        is_whole=True,
        default=2,
        help="Cores of a Spark on this machine.",
    ),
)
EXPORT = (
    Argument(
        flag="--dir",
        metavar="DIR",
        is_required=True,
        help="Where to: one directory for driver and workers, empty or of exports before.",
    ),
    Argument(
        flag="--from",
        metavar="POSITION",
        help="earliest, a time, @MS or JSON of offsets; default: where the export before ended.",
    ),
    Argument(
        flag="--to",
        metavar="POSITION",
        help="The position to end at, exclusive: latest, a time, @MS or JSON of offsets.",
    ),
    Argument(
        flag="--by",
        choices=PARTITIONINGS,
        default="day",
        help="One folder for each day or hour of the record's timestamp, in UTC.",
    ),
    Argument(flag="--headers", is_flag=True, help="Add the column `headers`."),
    Argument(
        flag="--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="Whether records of aborted and open transactions are left out.",
    ),
    Argument(
        flag="--allow-data-loss",
        is_flag=True,
        help="Go on where requested offsets are gone, and list them.",
    ),
    Argument(
        flag="--compression",
        choices=COMPRESSIONS,
        default="zstd",
        help="Compression of the Parquet files.",
    ),
    Argument(
        flag="--chunk-bytes",
        metavar="N",
        is_whole=True,
        default=ChunkSize().stored_bytes,
        help="Stored bytes that one task exports at most.",
    ),
    Argument(
        flag="--chunk-records",
        metavar="N",
        is_whole=True,
        default=ChunkSize().records,
        help="Offsets that one task exports at most.",
    ),
    Argument(
        flag="--read-mode",
        choices=("kafka_preferred", "remote_preferred", "remote_only", "kafka_only"),
        default="remote_preferred",
        help="Which tier is read first, or alone.",
    ),
    Argument(
        flag="--bootstrap-server",
        metavar="HOST:PORT",
        help="Kafka itself; without it all comes through the fetch API.",
    ),
    Argument(
        flag="--option",
        metavar="NAME=VALUE",
        is_many=True,
        help="Any option of the data source, e.g. kafka.security.protocol=SSL.",
    ),
    *_MASTER,
)
AUDIT = _MASTER
CONNECTION = (
    Argument(
        flag="--address",
        metavar="HOST:PORT,...",
        env="RLM_ADDRESS",
        help="gRPC addresses of services; one leads to all.",
    ),
    Argument(flag="--principal", env="RLM_PRINCIPAL", help="The principal of the calls."),
    Argument(flag="--token-file", metavar="FILE", env="RLM_TOKEN_FILE", help="The API token."),
    Argument(flag="--tls-ca", metavar="FILE", env="RLM_TLS_CA", help="Speak TLS; authorities."),
    Argument(flag="--tls-cert", metavar="FILE", env="RLM_TLS_CERT", help="To show."),
    Argument(flag="--tls-key", metavar="FILE", env="RLM_TLS_KEY", help="Key of --tls-cert."),
    Argument(
        flag="--tls-server-name",
        metavar="NAME",
        env="RLM_TLS_SERVER_NAME",
        help="Name in the service's certificate, where it is not its host.",
    ),
    Argument(flag="--json", is_flag=True, help="Print JSON."),
)
_CONNECTION_OPTIONS = {
    "address": "rlm.endpoints",
    "principal": "rlm.principal",
    "token_file": "rlm.token.file",
    "tls_ca": "rlm.tls.ca.file",
    "tls_cert": "rlm.tls.cert.file",
    "tls_key": "rlm.tls.key.file",
    "tls_server_name": "rlm.tls.server.name",
}


def connection_options(values: Mapping[str, Any]) -> dict[str, str]:
    """The data source's options that the given CONNECTION arguments mean."""
    return {
        option: str(values[name])
        for name, option in _CONNECTION_OPTIONS.items()
        if values.get(name)
    }


def export_options(
    topics: Sequence[str], values: Mapping[str, Any], connection: Mapping[str, str]
) -> dict[str, str]:
    """The data source's options for an export; ExportError names the argument that is wrong."""
    options = {
        **connection,
        "subscribe": ",".join(topics),
        "kafka.isolation.level": values["isolation"],
        "includeHeaders": str(values["headers"]).lower(),
        "failOnDataLoss": str(not values["allow_data_loss"]).lower(),
        "readMode": values["read_mode"],
    }
    if not topics:
        del options["subscribe"]
    if values["bootstrap_server"]:
        options["kafka.bootstrap.servers"] = values["bootstrap_server"]
    if values["from"]:
        options |= bound_options(values["from"], "starting")
    if values["to"]:
        options |= bound_options(values["to"], "ending")
    for text in values["option"] or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ExportError(f"--option: must be NAME=VALUE, got {name!r}")
        options[name] = value
    return options


def chunk_size(values: Mapping[str, Any]) -> ChunkSize:
    """The limits of a chunk. ExportError if one is not positive."""
    size = ChunkSize(records=values["chunk_records"], stored_bytes=values["chunk_bytes"])
    if size.records < 1 or size.stored_bytes < 1:
        raise ExportError("--chunk-records and --chunk-bytes must be at least 1")
    return size


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """The parser of `python -m rlm_spark.pipelines`; some defaults come from the environment."""
    top = argparse.ArgumentParser(
        prog="python -m rlm_spark.pipelines", description="Pipelines over tiered topics."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary, rows in (
        ("export", EXPORT_SUMMARY, EXPORT),
        ("audit", AUDIT_SUMMARY, AUDIT),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("topics", nargs="*", metavar="TOPIC")
        for row in (*rows, *CONNECTION):
            _add(command, row, environ)
    return top


def _add(command: argparse.ArgumentParser, row: Argument, environ: Mapping[str, str]) -> None:
    help_text = f"{row.help} (or {row.env})" if row.env else row.help
    if row.is_flag:
        command.add_argument(row.flag, action="store_true", help=help_text)
        return
    command.add_argument(
        row.flag,
        dest=row.name,
        help=help_text,
        metavar=row.metavar or None,
        choices=row.choices or None,
        default=environ.get(row.env, row.default) if row.env else row.default,
        required=row.is_required,
        type=int if row.is_whole else str,
        action="append" if row.is_many else "store",
    )
