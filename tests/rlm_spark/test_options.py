"""Every rule and error of the options, with the wording of Spark's Kafka source."""

import logging
import pickle
from pathlib import Path

import pytest

from rlm_spark.plan.offset_specs import (
    Assign,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    OptionError,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
)
from rlm_spark.plan.options import (
    BatchQuery,
    StreamQuery,
    includes_headers,
    parse_batch,
    parse_stream,
)
from tiered_reads.values import ReadMode, TopicPartition

SERVERS = {"kafka.bootstrap.servers": "k:9092"}
SERVICE = {"rlm.endpoints": "a:7001, b:7001,"}
ENOUGH = {"subscribe": "t", **SERVERS, **SERVICE}


def batch(options: dict[str, str]) -> BatchQuery:
    return parse_batch(options, user="ann", read_text=_no_file)


def stream(options: dict[str, str]) -> StreamQuery:
    return parse_stream(options, user="ann", read_text=_no_file)


def _no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


# KafkaRelationSuite "bad batch query options", all ten.
BAD_BATCH = [
    ({"startingOffsets": "latest"}, ["starting offset can't be latest for batch queries on Kafka"]),
    (
        {"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'},
        ["startingOffsets for t-0 can't be latest for batch queries on Kafka"],
    ),
    ({"endingOffsets": "earliest"}, ["ending offset can't be earliest for batch queries on Kafka"]),
    (
        {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'},
        ["ending offset for t-0 can't be earliest for batch queries on Kafka"],
    ),
    ({}, ["options must be specified", "subscribe", "subscribePattern"]),
    ({"subscribe": "t", "subscribePattern": "t.*"}, ["only one", "options can be specified"]),
    ({"subscribe": "t", "assign": '{"a":[0]}'}, ["only one", "options can be specified"]),
    ({"assign": ""}, ["no topicpartitions to assign"]),
    ({"subscribe": ""}, ["no topics to subscribe"]),
    ({"subscribePattern": ""}, ["pattern to subscribe is empty"]),
]


@pytest.mark.parametrize(("options", "wanted"), BAD_BATCH)
def test_bad_batch_options_of_sparks_suite(options: dict[str, str], wanted: list[str]) -> None:
    with pytest.raises(OptionError) as raised:
        batch(options)

    for part in wanted:
        assert part.lower() in str(raised.value).lower()


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"minPartitions": "-3"}, "minPartitions must be positive"),
        (
            {"minPartitions": "many"},
            'minPartitions must be a whole number. For input string: "many"',
        ),
        ({"minPartitions": "2147483648"}, "minPartitions must be a whole number"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive"),
        ({"kafka.auto.offset.reset": "none"}, "Instead set the source option 'startingoffsets'"),
        ({"kafka.key.deserializer": "x"}, "keys are deserialized as byte arrays"),
        ({"kafka.value.deserializer": "x"}, "values are deserialized as byte arrays"),
        ({"kafka.enable.auto.commit": "1"}, "'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
        ({"KAFKA.Interceptor.Classes": "x"}, "'interceptor.classes' is not supported"),
        (
            {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
            "The value of minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(10).",
        ),
        ({"assign": "{}", "subscribe": "t"}, "Only one of the following options"),
        ({"startingTimestamp": "now"}, "Expected a single long value, got now"),
        ({"startingOffsets": "first"}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({"startingOffsets": '{"t":{"0":-3}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({"startingOffsets": '{"t":{"0":true}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({"startingOffsets": '{"t":[0]}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({"endingOffsetsByTimestamp": "5"}, 'Expected e.g. {"topicA": {"0": 123456789'),
        (
            {"startingOffsetsByTimestampStrategy": "skip"},
            "Strategy: must be error or latest, got 'skip'",
        ),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: must be true or false, got 'maybe'"),
        ({"readMode": "remote"}, "readMode: must be kafka_preferred or remote_preferred"),
        (
            {"kafka.isolation.level": "serial"},
            "kafka.isolation.level: must be read_committed or read_uncommitted",
        ),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs must be positive"),
        ({"fetchOffset.numRetries": "-1"}, "fetchOffset.numRetries must not be negative"),
        ({"rlm.tls.cert.file": "c.pem"}, "rlm.tls.cert.file and rlm.tls.key.file go together"),
        ({"rlm.endpoints": " , "}, "'rlm.endpoints' is empty"),
        ({"rlm.token": "a", "rlm.token.file": "b"}, "rlm.token or rlm.token.file, not both"),
        ({"rlm.token.file": "none.txt"}, "none.txt cannot be read: No such file"),
    ],
)
def test_bad_options(more: dict[str, str], wanted: str) -> None:
    with pytest.raises(OptionError) as raised:
        batch({**ENOUGH, **more})

    assert wanted in str(raised.value)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: must be a time such as 15m"),
        ({"maxTriggerDelay": "5y"}, "maxTriggerDelay: must be a time such as 15m"),
    ],
)
def test_bad_streaming_options(options: dict[str, str], wanted: str) -> None:
    with pytest.raises(OptionError, match=wanted):
        stream({**ENOUGH, **options})


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"),
        ({**SERVERS}, "Option 'rlm.endpoints' must be specified for readMode kafka_preferred"),
        ({**SERVERS, "readMode": "remote_only"}, "must be specified for readMode remote_only"),
        ({**SERVICE, "readMode": "kafka_only"}, "Option 'kafka.bootstrap.servers' must be"),
        ({"kafka.bootstrap.servers": " ", **SERVICE}, "'kafka.bootstrap.servers' is empty"),
    ],
)
def test_a_mode_needs_what_it_reads_from(options: dict[str, str], wanted: str) -> None:
    with pytest.raises(OptionError, match=wanted):
        batch({"subscribe": "t", **options})


def test_defaults_of_a_batch() -> None:
    query = batch(ENOUGH)

    assert query.subscription == Subscribe(topics=("t",))
    assert query.starting == Earliest()
    assert query.ending == Latest()
    assert (query.min_partitions, query.max_records_per_partition) == (None, None)
    assert not query.has_pushdown
    connector = query.connector
    assert connector.read_mode is ReadMode.KAFKA_PREFERRED
    assert connector.kafka == {"bootstrap.servers": "k:9092"}
    assert connector.fail_on_data_loss
    assert not connector.read_committed
    assert connector.poll_timeout_ms == 120_000
    assert (connector.fetch_offset_retries, connector.fetch_offset_retry_interval_ms) == (3, 10)
    assert connector.service is not None
    assert connector.service.endpoints == ("a:7001", "b:7001")
    assert connector.service.principal == "spark-ann"
    assert connector.service.call_timeout_ms == 30_000
    assert not connector.service.has_tls


def test_defaults_of_a_stream() -> None:
    query = stream(ENOUGH)

    assert query.starting == Latest()
    assert query.max_offsets_per_trigger is None
    assert query.min_offsets_per_trigger is None
    assert query.max_trigger_delay_ms == 15 * 60_000


@pytest.mark.parametrize(
    ("text", "wanted_ms"), [("5s", 5_000), ("250ms", 250), ("70", 70), ("2h", 7_200_000)]
)
def test_times_as_spark_writes_them(text: str, wanted_ms: int) -> None:
    assert stream({**ENOUGH, "maxTriggerDelay": text}).max_trigger_delay_ms == wanted_ms


def test_options_are_case_insensitive() -> None:
    query = batch(
        {
            "SUBSCRIBE": "t",
            "Kafka.Bootstrap.Servers": "k:9092",
            "readmode": "KAFKA_ONLY",
            "failondataloss": "FALSE",
            "MINPARTITIONS": " 7 ",
        }
    )

    assert query.connector.kafka == {"bootstrap.servers": "k:9092"}
    assert not query.connector.fail_on_data_loss
    assert query.min_partitions == 7
    assert includes_headers({"INCLUDEHEADERS": "True"})
    assert not includes_headers({})


def test_topic_names_keep_their_case() -> None:
    query = batch({"assign": '{"Orders":[1,0]}', **SERVERS, **SERVICE})

    assert query.subscription == Assign(
        partitions=frozenset({TopicPartition("Orders", 0), TopicPartition("Orders", 1)})
    )


def test_subscriptions() -> None:
    given = {**SERVERS, **SERVICE}

    assert batch({"subscribe": " a , b,a,", **given}).subscription == Subscribe(topics=("a", "b"))
    pattern = batch({"subscribePattern": " t[0-9]+ ", **given}).subscription
    assert isinstance(pattern, SubscribePattern)
    assert pattern.pattern.pattern == "t[0-9]+"
    with pytest.raises(OptionError, match="option 'subscribePattern' is not a pattern"):
        batch({"subscribePattern": "t(", **given})
    with pytest.raises(OptionError, match=r"Expected e\.g\."):
        batch({"assign": '{"t":0}', **given})


def test_precedence_is_global_timestamp_then_timestamps_then_offsets() -> None:
    options = {
        **ENOUGH,
        "startingTimestamp": "300",
        "startingOffsetsByTimestamp": '{"t":{"0":200}}',
        "startingOffsets": "earliest",
        "endingTimestamp": "900",
        "endingOffsetsByTimestamp": '{"t":{"0":800}}',
        "endingOffsets": "latest",
    }
    topic_partition = TopicPartition("t", 0)

    query = batch(options)
    assert query.starting == GlobalTimestamp(300, NoMatch.ERROR)
    assert query.ending == GlobalTimestamp(900, NoMatch.ERROR)

    del options["startingTimestamp"], options["endingTimestamp"]
    options["startingOffsetsByTimestampStrategy"] = "LATEST"
    query = batch(options)
    assert query.starting == SpecificTimestamps({topic_partition: 200}, NoMatch.LATEST)
    assert query.ending == SpecificTimestamps({topic_partition: 800}, NoMatch.LATEST)

    options["startingOffsets"], options["endingOffsets"] = '{"t":{"0":-2}}', '{"t":{"0":-1}}'
    del options["startingOffsetsByTimestamp"], options["endingOffsetsByTimestamp"]
    query = batch(options)
    assert query.starting == SpecificOffsets({topic_partition: -2})
    assert query.ending == SpecificOffsets({topic_partition: -1})


def test_start_and_end_must_name_the_same_partitions() -> None:
    with pytest.raises(OptionError) as raised:
        batch(
            {
                **ENOUGH,
                "startingOffsets": '\n{"test": {"0": 1, "1": 1, "2": 1}}\n',
                "endingOffsets": '{"test": {"0": 0, "1": 0}}',
            }
        )

    assert (
        "The specified start offset and end offset should have the same topic-partitions. "
        "Topic-partitions for start offset: test-0, test-1, test-2, topic-partitions for end "
        "offset: test-0, test-1." in str(raised.value)
    )


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (
            {"startingOffsets": '{"test":{"0":1}}'},
            {"endingOffsets": '{"test":{"0":0}}'},
            "The specified start offset 1 is greater than the end offset 0 for topic test",
        ),
        (
            {"startingOffsetsByTimestamp": '{"test":{"0":10}}'},
            {"endingOffsetsByTimestamp": '{"test":{"0":9}}'},
            "The specified start timestamp 10 is greater than the end timestamp 9 for topic test",
        ),
    ],
)
def test_unresolved_start_after_the_end(
    start: dict[str, str], end: dict[str, str], wanted: str
) -> None:
    with pytest.raises(OptionError, match=wanted):
        batch({**ENOUGH, **start, **end})


def test_a_start_is_not_compared_with_latest() -> None:
    query = batch(
        {
            **ENOUGH,
            "startingOffsets": '{"t":{"0":7}}',
            "endingOffsets": '{"t":{"0":-1}}',
        }
    )

    assert query.starting == SpecificOffsets({TopicPartition("t", 0): 7})


def test_unknown_options_are_ignored_but_a_misspelt_one_of_ours_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        batch({**ENOUGH, "path": "x", "startingOffset": "latest", "rlm.retries": "5"})

    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2
    assert "option=startingoffset ignored=true did_you_mean=startingOffsets" in warnings[0]
    assert "option=rlm.retries ignored=true" in warnings[1]


def test_stream_limits_in_a_batch_are_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        batch({**ENOUGH, "maxOffsetsPerTrigger": "5"})

    assert "option=maxOffsetsPerTrigger reason=batch query" in caplog.text


def test_a_group_id_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        query = batch({**ENOUGH, "kafka.group.id": "g"})

    assert "'kafka.group.id' has been set" in caplog.text
    assert query.connector.kafka["group.id"] == "g"


def test_isolation_and_modes() -> None:
    committed = batch({**ENOUGH, "kafka.isolation.level": "Read_Committed"})
    remote = batch({"subscribe": "t", **SERVICE, "readMode": "remote_only"})

    assert committed.connector.read_committed
    assert remote.connector.read_mode is ReadMode.REMOTE_ONLY
    assert not remote.connector.has_kafka


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\nthe-next-one\n")
    options = {**ENOUGH, "rlm.token.file": str(file), "rlm.principal": "jobs"}

    query = parse_batch(options, user="ann", read_text=lambda path: Path(path).read_text())

    assert query.connector.service is not None
    assert query.connector.service.token == "s3cret"
    assert query.connector.service.principal == "jobs"
    file.write_text("\n")
    with pytest.raises(OptionError, match="is empty"):
        parse_batch(options, user="ann", read_text=lambda path: Path(path).read_text())


def test_of_two_tokens_the_first_is_shown_as_services_do() -> None:
    options = {**ENOUGH, "rlm.token.file": "tokens"}
    query = parse_batch(options, user="ann", read_text=lambda _: "\nn3w\n s3cret \n")
    assert query.connector.service is not None
    assert query.connector.service.token == "n3w"


def test_what_a_call_cannot_carry_is_refused_without_telling_a_secret() -> None:
    for options in ({"rlm.token": "hunter2\u00e9"}, {"rlm.token.file": "f"}):
        with pytest.raises(OptionError, match="printable ASCII") as raised:
            parse_batch({**ENOUGH, **options}, user="ann", read_text=lambda _: "hunter2\x07")
        assert "hunter2" not in str(raised.value)
    with pytest.raises(OptionError, match=r"rlm\.principal must be printable ASCII"):
        batch({**ENOUGH, "rlm.principal": "j\u00f6rg"})
    query = parse_batch(ENOUGH, user="j\u00f6rg", read_text=_no_file)
    assert query.connector.service is not None
    assert query.connector.service.principal == "spark-j?rg"


def test_no_secret_in_a_repr_or_error() -> None:
    secrets = {"rlm.token": "hunter2", "kafka.sasl.jaas.config": 'password="hunter2"'}

    assert "hunter2" not in repr(batch({**ENOUGH, **secrets}))
    assert "hunter2" not in repr(stream({**ENOUGH, **secrets}))
    for bad in ({"readMode": "x"}, {"rlm.token.file": "also"}, {"minPartitions": "x"}):
        with pytest.raises(OptionError) as raised:
            batch({**ENOUGH, **secrets, **bad})
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("strategy", ["subscribe", "subscribePattern"])
def test_queries_pickle(strategy: str) -> None:
    options = {**SERVERS, **SERVICE, strategy: "t"}

    assert pickle.loads(pickle.dumps(batch(options))) == batch(options)
    assert pickle.loads(pickle.dumps(stream(options))) == stream(options)
