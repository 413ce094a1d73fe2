"""Stored batches into rows: what every reader of a Kafka topic sees, by both decoders."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from rlm_spark.decode import COLUMNS, arrow_schema, is_compiled, record_batches
from rlm_spark.decode.engine import ENVIRONMENT, choose
from tests.kip405.batch_builder import legacy, smallest_legacy
from tests.rlm_spark.decode.encoding import (
    ABORT,
    COMMIT,
    Batch,
    Rec,
    control,
    joined,
    simple,
)
from tests.rlm_spark.decode.engines import ALL, TOPIC_PARTITION, Decoder
from tiered_reads.errors import DecodeError
from tiered_reads.values import Fetched, OffsetRange


def piece(*batches: Batch, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    return Fetched(
        batches=joined(batches), next_offset=batches[-1].last_offset + 1, aborted=aborted
    )


def in_transaction(base_offset: int, producer_id: int = 7) -> Batch:
    return simple(base_offset, 2, transactional=True, producer_id=producer_id)


@pytest.mark.parametrize("codec", range(5))
def test_every_column_of_a_record(decoder: Decoder, codec: int) -> None:
    headers = ((b"a", b"1"), (b"a", None), (b"", b""))
    records = (
        Rec(offset=10, timestamp_ms=123, key=b"k", value=b"v" * 100, headers=headers),
        Rec(offset=11, timestamp_ms=-1),
        Rec(offset=12, key=b"", value=b""),
    )
    data = Batch(base_offset=10, last_offset=12, records=records, codec=codec).encode()
    common = {"topic": "orders", "partition": 3, "timestampType": 0}
    assert decoder.rows(data) == [
        {
            "key": b"k",
            "value": b"v" * 100,
            "offset": 10,
            "timestamp": 123,
            "headers": [
                {"key": "a", "value": b"1"},
                {"key": "a", "value": None},
                {"key": "", "value": b""},
            ],
            **common,
        },
        {"key": None, "value": None, "offset": 11, "timestamp": -1, "headers": None, **common},
        {"key": b"", "value": b"", "offset": 12, "timestamp": 1000, "headers": None, **common},
    ]


def test_log_append_time_is_the_batchs(decoder: Decoder) -> None:
    data = joined([simple(0, 2, log_append_ms=9_000), simple(2, 1)])
    rows = decoder.rows(data)
    assert [(row["timestamp"], row["timestampType"]) for row in rows] == [
        (9_000, 1),
        (9_000, 1),
        (1_000, 0),
    ]


@pytest.mark.parametrize(("start", "end"), [(0, 9), (2, 7), (4, 5), (5, 5), (8, 100), (20, 30)])
def test_offsets_are_trimmed_inside_batches(decoder: Decoder, start: int, end: int) -> None:
    data = joined([simple(0, 5), simple(5, 1, codec=3), simple(6, 3, codec=4)])
    assert decoder.offsets(data, start, end) == list(range(start, min(end, 9)))


def test_compacted_gaps_and_empty_batches(decoder: Decoder) -> None:
    gaps = Batch(base_offset=10, last_offset=19, records=(Rec(offset=12), Rec(offset=15)))
    empty = Batch(base_offset=20, last_offset=29, records=())
    assert decoder.offsets(joined([gaps, empty, simple(30, 1)])) == [12, 15, 30]
    assert decoder.batches(joined([empty])) == []


def test_no_rows_no_batch(decoder: Decoder) -> None:
    assert decoder.batches([]) == []
    assert decoder.batches(b"") == []
    assert decoder.batches(simple(0, 3).encode(), 3, 9) == []


def test_control_batches_are_never_rows(decoder: Decoder) -> None:
    data = joined([in_transaction(0), control(2, COMMIT, 7), simple(3, 1)])
    assert decoder.offsets(data, read_committed=True) == [0, 1, 3]
    assert decoder.offsets(data, read_committed=False) == [0, 1, 3]


def test_aborted_records_are_dropped_under_read_committed_only(decoder: Decoder) -> None:
    batches = (
        in_transaction(0, 7),
        in_transaction(2, 8),
        simple(4, 1),
        control(5, ABORT, 7),
        in_transaction(6, 7),
        control(8, COMMIT, 7),
        control(9, COMMIT, 8),
    )
    pieces = [piece(*batches, aborted=((7, 0),))]
    assert decoder.offsets(pieces, read_committed=True) == [2, 3, 4, 6, 7]
    assert decoder.offsets(pieces, read_committed=False) == [0, 1, 2, 3, 4, 6, 7]


def test_a_commit_marker_of_another_transaction_opens_nothing(decoder: Decoder) -> None:
    batches = (
        in_transaction(0),
        control(2, COMMIT, 7),
        in_transaction(3),
        control(5, ABORT, 7),
        in_transaction(6),
        control(8, ABORT, 7),
    )
    assert decoder.offsets([piece(*batches, aborted=((7, 6), (7, 3)))]) == [0, 1]


def test_markers_before_the_start_still_end_their_transactions(decoder: Decoder) -> None:
    batches = (in_transaction(0), control(2, ABORT, 7), in_transaction(3))
    assert decoder.offsets([piece(*batches, aborted=((7, 0),))], 3) == [3, 4]


def test_each_piece_brings_its_own_aborted_transactions(decoder: Decoder) -> None:
    pieces = [
        piece(in_transaction(0), aborted=((7, 0),)),
        piece(in_transaction(2), control(4, ABORT, 7), aborted=((7, 0),)),
        piece(in_transaction(5), control(7, COMMIT, 7)),
    ]
    assert decoder.offsets(pieces) == [5, 6]


def test_offsets_that_pieces_repeat_are_given_once(decoder: Decoder) -> None:
    pieces = [
        piece(simple(0, 3), simple(3, 4)),
        piece(simple(3, 4), simple(7, 2)),
        piece(simple(6, 4)),
    ]
    assert decoder.offsets(pieces) == list(range(10))


def test_pieces_are_not_asked_for_beyond_the_end(decoder: Decoder) -> None:
    def pieces() -> Iterator[Fetched]:
        yield piece(simple(0, 3))
        yield piece(simple(3, 3))
        raise AssertionError("asked for more")

    for end in (4, 6):
        wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=1, end_offset=end)
        batches = record_batches(pieces(), wanted, ALL, read_committed=True)
        assert sum(batch.num_rows for batch in batches) == end - 1


@pytest.mark.parametrize(
    "names",
    [["value"], ["offset", "key"], ["headers"], ["timestampType", "timestamp"], [], ["topic"]]
    + [[name] for name in COLUMNS]
    + [list(reversed(COLUMNS)), ["value", "value"]],
)
def test_any_columns_in_any_order(decoder: Decoder, names: list[str]) -> None:
    data = joined([simple(0, 5), simple(5, 5, codec=4)])
    whole = pa.Table.from_batches(decoder.batches(data))
    batches = decoder.batches(data, schema=arrow_schema(names))
    assert sum(batch.num_rows for batch in batches) == 10
    if len(set(names)) == len(names) and names:
        assert pa.Table.from_batches(batches) == whole.select(names)


def test_columns_of_other_types_are_refused(decoder: Decoder) -> None:
    for schema in (pa.schema([("value", pa.string())]), pa.schema([("other", pa.binary())])):
        with pytest.raises(ValueError, match="is none of a record's"):
            decoder.batches(simple(0, 1).encode(), schema=schema)


def test_batches_have_about_the_target(decoder: Decoder) -> None:
    records = tuple(Rec(offset=o, value=b"x" * 1000) for o in range(1000))
    data = Batch(base_offset=0, last_offset=999, records=records, codec=4).encode()
    batches = decoder.batches(data, target_bytes=50_000)
    assert sum(batch.num_rows for batch in batches) == 1000
    sizes = [batch.num_rows for batch in batches]
    assert set(sizes[:-1]) == {sizes[0]}
    assert 45 < sizes[0] < 51


def test_a_record_beyond_twice_the_target_begins_its_own_batch(decoder: Decoder) -> None:
    sizes = [10, 10, 3000, 10, 3000]
    records = tuple(Rec(offset=o, value=b"x" * size) for o, size in enumerate(sizes))
    data = Batch(base_offset=0, last_offset=4, records=records).encode()
    batches = decoder.batches(data, target_bytes=1000)
    assert [batch.num_rows for batch in batches] == [2, 1, 1, 1]


def test_topic_names_count_for_the_size_of_batches(decoder: Decoder) -> None:
    data = simple(0, 1000).encode()
    schema = arrow_schema(["topic", "partition"])
    batches = decoder.batches(data, schema=schema, target_bytes=1400)
    assert {batch.num_rows for batch in batches} == {100}


def test_header_names_that_are_no_utf8_are_replaced(decoder: Decoder) -> None:
    names = [
        b"\xff",
        b"ok\xc3",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\x80x",
        "ä€😀".encode(),
    ]
    records = tuple(Rec(offset=o, headers=((name, b"v"),)) for o, name in enumerate(names))
    data = Batch(base_offset=0, last_offset=9, records=records).encode()
    found = [row["headers"] for row in decoder.rows(data)]
    assert found == [[{"key": name.decode(errors="replace"), "value": b"v"}] for name in names]


def test_timestamps_beyond_microseconds_are_refused_where_wanted(decoder: Decoder) -> None:
    for timestamp_ms in ((1 << 63) - 1, 1 << 54):
        data = Batch(
            base_offset=0,
            last_offset=1,
            records=(Rec(offset=0), Rec(offset=1, timestamp_ms=timestamp_ms)),
            base_timestamp_ms=timestamp_ms,
        ).encode()
        with pytest.raises(DecodeError, match="timestamp beyond what microseconds hold"):
            decoder.rows(data)
        batches = decoder.batches(data, schema=arrow_schema(["offset"]))
        assert [batch.num_rows for batch in batches] == [2]


@pytest.mark.parametrize("data", [legacy(40), legacy(40, magic=0), smallest_legacy(40)])
def test_magic_0_and_1_are_refused(decoder: Decoder, data: bytes) -> None:
    with pytest.raises(
        DecodeError, match=r"orders-3 at offset 40: records of magic [01] stay opaque"
    ):
        decoder.rows(simple(30, 10).encode() + data)


def test_a_changed_byte_names_its_batch(decoder: Decoder) -> None:
    data = bytearray(joined([simple(0, 3), simple(3, 3)]))
    data[-1] ^= 1
    with pytest.raises(DecodeError) as caught:
        decoder.rows(bytes(data))
    assert caught.value.offset == 3
    assert "crc" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [5, 16, 17, 40, 61, 70])
def test_a_batch_cut_short_is_refused(decoder: Decoder, kept: int) -> None:
    data = simple(0, 3).encode() + simple(3, 3).encode()[:kept]
    with pytest.raises(DecodeError, match=r"orders-3 at offset 3: .*cut short"):
        decoder.rows(data)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "python")
    assert not is_compiled()
    monkeypatch.setenv(ENVIRONMENT, "fast")
    with pytest.raises(ValueError, match="allowed are compiled and python"):
        choose()


def test_columns_are_sparks() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    arrow = pytest.importorskip("pyspark.sql.pandas.types")
    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    kafka = types.StructType()
    for name, kind in {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(header),
    }.items():
        kafka.add(name, kind)
    assert arrow.to_arrow_schema(kafka, timezone="UTC") == ALL


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ValueError, match="no such columns: size"):
        arrow_schema(["value", "size"])
