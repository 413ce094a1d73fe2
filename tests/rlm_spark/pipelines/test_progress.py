"""How far it is, in words, and the arguments of the commands."""

import io

import pytest

from rlm_spark.pipelines.__main__ import main
from rlm_spark.pipelines.arguments import (
    EXPORT,
    chunk_size,
    connection_options,
    export_options,
    parser,
)
from rlm_spark.pipelines.chunks import ExportError
from rlm_spark.pipelines.spark_jobs import Done, Shown, human_bytes, human_seconds, message_of
from rlm_spark.plan.offset_specs import OptionError
from rlm_spark.plan.options import parse_batch


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_a_line_now_and_then_with_speed_and_what_is_left() -> None:
    clock, out = Clock(), io.StringIO()
    shown = Shown(
        out, name="export", unit="chunks", total_items=4, total_weight=100, monotonic_ms=clock
    )
    for ms in range(0, 10_001, 1_000):
        clock.now = ms
        shown.show(Done(items=1, rows=12_345, size_bytes=10 << 20, weight=25))
    shown.end(Done(items=4, rows=1_500_000, size_bytes=40 << 20, weight=100))
    assert out.getvalue().splitlines() == [
        "export: 1 of 4 chunks, 12.3k rows, 10.0 MiB, 2.0 MiB/s, 15s left",
        "export: 1 of 4 chunks, 12.3k rows, 10.0 MiB, 1.0 MiB/s, 30s left",
        "export: 4 of 4 chunks, 1.5M rows, 40.0 MiB, 4.0 MiB/s",
    ]


def test_numbers_for_people() -> None:
    assert [human_bytes(size) for size in (0, 1023, 1024, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 GiB",
    ]
    assert [human_seconds(one) for one in (0.4, 59, 61, 3_700)] == ["0s", "59s", "1m01s", "1h01m"]


def values(*arguments: str, env: dict[str, str] | None = None) -> dict[str, object]:
    return vars(parser(env or {}).parse_args(["export", *arguments]))


def test_arguments_become_the_options_of_the_source() -> None:
    given = values(
        *("a", "b", "--dir", "x", "--from", "2026-11-21", "--to", '{"a":{"0":5}}', "--headers"),
        *("--allow-data-loss", "--read-mode", "remote_only", "--option", "kafka.x.y=1=2"),
        env={"RLM_ADDRESS": "h:1,h:2", "RLM_TLS_CA": "ca.pem"},
    )
    connection = connection_options(given)
    assert connection == {"rlm.endpoints": "h:1,h:2", "rlm.tls.ca.file": "ca.pem"}
    assert export_options(["a", "b"], given, connection) == {
        **connection,
        "subscribe": "a,b",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "readMode": "remote_only",
        "kafka.isolation.level": "read_committed",
        "startingTimestamp": "1795219200000",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsets": '{"a":{"0":5}}',
        "kafka.x.y": "1=2",
    }


def test_the_defaults_are_a_query_and_topics_must_be_said() -> None:
    given = values("--dir", "x", "--address", "h:1")
    options = export_options(["t"], given, connection_options(given))
    query = parse_batch(options, user="me", read_text=lambda path: "")
    assert query.connector.read_committed
    assert query.connector.fail_on_data_loss
    assert chunk_size(given).stored_bytes == 256 << 20
    with pytest.raises(OptionError, match="must be specified"):
        parse_batch(
            export_options([], given, connection_options(given)),
            user="me",
            read_text=lambda path: "",
        )


def test_wrong_arguments_name_themselves() -> None:
    with pytest.raises(ExportError, match="--option: must be NAME=VALUE"):
        export_options(["t"], values("--dir", "x", "--option", "y"), {})
    with pytest.raises(ExportError, match="at least 1"):
        chunk_size(values("--dir", "x", "--chunk-records", "0"))


def test_a_wrong_use_is_an_error_without_starting_a_spark(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["export", "t", "--dir", "x", "--from", "soon"]) == 1
    assert capsys.readouterr().err.startswith("export: 'soon' is not a position in a topic")


def test_every_argument_has_a_name_of_its_own() -> None:
    assert len({row.name for row in EXPORT}) == len(EXPORT)


_TRACE = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1
 times, most recent failure: Lost task 0.0: org.apache.spark.api.python.PythonException: Traceback
 (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
    ~~~~~~~^^
  File "/x/fetch_client.py", line 2, in _all
rlm_spark.errors.ServiceError: no service answers (UNAVAILABLE)

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)
"""


def test_a_failed_job_reports_the_workers_message() -> None:
    assert message_of(RuntimeError(_TRACE)) == "no service answers (UNAVAILABLE)"
    crashed = (
        "Job aborted: Task 7 in stage 3.0 failed 1 times, most recent failure: "
        "Lost task 7.0 in stage 3.0 (TID 9) (h executor driver): java.net.SocketException: reset\n"
        "\tat x\nCaused by: java.io.EOFException: end\n"
    )
    assert message_of(RuntimeError(crashed)) == (
        "Lost task 7.0 in stage 3.0 (TID 9) (h executor driver): java.net.SocketException: reset"
    )
    assert message_of(RuntimeError("strange\nmore")) == "strange"
