"""`rlm export` and `rlm audit`: the arguments of the table, and the service they lead to."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kip405.errors import Invalid
from rlm.cli.main import main
from rlm.cli.pipelines import audit, connection_options, export
from rlm.cli.target import Connect
from rlm_spark.errors import LibraryMissingError, needing_spark
from rlm_spark.pipelines.arguments import AUDIT, EXPORT, Argument
from rsm_plugins.contract.tls import Tls


@pytest.mark.parametrize(("command", "rows"), [(export, EXPORT), (audit, AUDIT)])
def test_commands_have_every_argument_of_their_table(
    command: click.Command, rows: tuple[Argument, ...]
) -> None:
    options = {one.name: one for one in command.params if isinstance(one, click.Option)}
    for row in rows:
        option = options[row.name]
        assert option.opts == [row.flag]
        assert option.required == row.is_required
        assert option.is_flag == row.is_flag
        assert option.multiple == row.is_many
        if row.default is not None:
            assert option.default == row.default


def _connect(*, address: str | None = "h:1", tls: Tls | None = None) -> Connect:
    return Connect(
        address=address,
        principal="me",
        token_file=Path("/run/token"),
        timeout_s=1.5,
        as_json=False,
        tls=tls,
    )


def test_the_service_becomes_options_of_the_source() -> None:
    tls = Tls(ca_file=Path("/ca.pem"), cert_file=None, key_file=None, server_name="name")
    assert connection_options(_connect(tls=tls)) == {
        "rlm.endpoints": "h:1",
        "rlm.principal": "me",
        "rlm.token.file": "/run/token",
        "rlm.call.timeout.ms": "1500",
        "rlm.tls.ca.file": "/ca.pem",
        "rlm.tls.server.name": "name",
    }


def test_a_service_must_be_said_unless_only_kafka_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RLM_SANDBOX", raising=False)
    nobody = _connect(address=None)
    assert connection_options(nobody, needs_service=False) == {}
    with pytest.raises(Invalid, match="which service"):
        connection_options(nobody)


def test_a_wrong_position_is_refused_before_spark_starts() -> None:
    arguments = ["export", "t", "--dir", "x", "--address", "h:1", "--from", "soon"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "rlm: 'soon' is not a position in a topic" in done.output


def test_without_spark_it_says_what_to_install() -> None:
    with pytest.raises(LibraryMissingError) as raised, needing_spark():
        raise ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql")
    assert str(raised.value) == "this needs pyspark: pip install 'kafka-rlm[spark]'"
