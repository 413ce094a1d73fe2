"""Both decoders give the rows of a model, and each other's buffers, on logs of every kind."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm_spark.decode.engine import ENVIRONMENT, Section, choose
from tests.rlm_spark.decode.encoding import ABORT, COMMIT, Batch, Rec, control, joined
from tests.rlm_spark.decode.engines import Decoder, names
from tiered_reads.values import Fetched

NULLABLE = st.none() | st.binary(max_size=40) | st.binary(min_size=500, max_size=600)
NAMES = st.binary(max_size=6) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(NAMES, NULLABLE), max_size=4).map(tuple)
PRODUCERS = st.integers(1, 3)

# Each example is a whole log through both: half as many as of other properties.
EXAMPLES = max(1, settings().max_examples // 2)

pytestmark = pytest.mark.skipif("compiled" not in list(names()), reason="no compiler here")


@dataclass(slots=True)
class Log:
    """Batches, and the records that a consumer sees of them."""

    batches: list[Batch] = field(default_factory=list)
    rows: list[tuple[Rec, Batch]] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    next_offset: int = 0

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.next_offset = batch.last_offset + 1
        if batch.control is None:
            self.rows += [(record, batch) for record in batch.records]
            if batch.transactional:
                self.open.setdefault(batch.producer_id, batch.base_offset)
            return
        first = self.open.pop(batch.producer_id, None)
        if first is not None and batch.control == ABORT:
            self.aborted.append((batch.producer_id, first, batch.base_offset))

    def seen(self, *, read_committed: bool) -> Iterator[tuple[Rec, Batch]]:
        for record, batch in self.rows:
            dropped = batch.transactional and any(
                producer == batch.producer_id and first <= record.offset < last
                for producer, first, last in self.aborted
            )
            if not (read_committed and dropped):
                yield record, batch


@st.composite
def records(draw: st.DrawFn, base_offset: int) -> tuple[tuple[Rec, ...], int]:
    """Records from an offset on, and the last offset of their batch."""
    made, offset = [], base_offset
    for gap in draw(st.lists(st.integers(0, 2) | st.integers(0, 200), max_size=8)):
        offset += gap
        timestamp = draw(st.integers(-1, 5_000) | st.integers(-(1 << 52), 1 << 52))
        made.append(
            Rec(
                offset=offset,
                timestamp_ms=timestamp,
                key=draw(NULLABLE),
                value=draw(NULLABLE),
                headers=draw(HEADERS),
            )
        )
        offset += 1
    return tuple(made), max(offset - 1, base_offset) + draw(st.integers(0, 2))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log(next_offset=draw(st.integers(0, 3) | st.just((1 << 40) - 5)))
    for _ in range(draw(st.integers(1, 8))):
        base, producer = log.next_offset, draw(PRODUCERS)
        kind = draw(st.sampled_from(["plain", "plain", "transaction", "transaction", "end"]))
        if kind == "end":
            log.append(control(base, draw(st.sampled_from([ABORT, COMMIT])), producer))
            continue
        made, last = draw(records(base))
        batch = Batch(
            base_offset=base,
            last_offset=last,
            records=made,
            codec=draw(st.integers(0, 4)) if made else 0,
            log_append_ms=draw(st.none() | st.integers(0, 9_000)),
            base_timestamp_ms=draw(st.integers(-1, 5_000)),
        )
        if kind == "transaction":
            batch = replace(batch, transactional=True, producer_id=producer)
        log.append(batch)
    for producer in list(log.open):
        log.append(control(log.next_offset, draw(st.sampled_from([ABORT, COMMIT])), producer))
    return log


@st.composite
def pieces(draw: st.DrawFn, log: Log) -> list[Fetched]:
    """The log as fetches bring it: cut between batches, some batches twice."""
    made, at = [], 0
    while at < len(log.batches):
        size = draw(st.integers(1, 4))
        part = log.batches[max(0, at - draw(st.integers(0, 1))) : at + size]
        first, last = part[0].base_offset, part[-1].last_offset
        overlapping = tuple((p, f) for p, f, end in log.aborted if f <= last and end >= first)
        made.append(Fetched(batches=joined(part), next_offset=last + 1, aborted=overlapping))
        at += size
    return made


def expected(record: Rec, batch: Batch) -> dict[str, object]:
    by_broker = batch.log_append_ms is not None
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": batch.log_append_ms if by_broker else record.timestamp_ms,
        "timestampType": int(by_broker),
        "headers": [
            {"key": name.decode(errors="replace"), "value": value} for name, value in record.headers
        ]
        or None,
    }


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_both_give_the_rows_of_the_model(
    data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = data.draw(logs())
    fetched = data.draw(pieces(log))
    offsets = st.integers(log.batches[0].base_offset, log.next_offset)
    start, end = sorted((data.draw(offsets), data.draw(offsets)))
    read_committed = data.draw(st.booleans())
    model = [
        expected(record, batch)
        for record, batch in log.seen(read_committed=read_committed)
        if start <= record.offset < end
    ]
    for name in names():
        decoder = Decoder(name, monkeypatch)
        assert decoder.rows(fetched, start, end, read_committed=read_committed) == model


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), target_bytes=st.integers(1, 3_000))
def test_both_cut_the_same_batches(
    data: st.DataObject, target_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = data.draw(logs())
    fetched = data.draw(pieces(log))
    given_by = {
        name: Decoder(name, monkeypatch).batches(fetched, target_bytes=target_bytes)
        for name in names()
    }
    assert given_by["python"] == given_by["compiled"]


@given(data=st.data(), columns=st.integers(0, 63), target_bytes=st.integers(1, 3_000))
def test_both_fill_the_same_buffers(data: st.DataObject, columns: int, target_bytes: int) -> None:
    made, last = data.draw(records(0))
    batch = Batch(base_offset=0, last_offset=last, records=made)
    encoded = batch.encode()
    section = Section(
        data=encoded,
        end=len(encoded),
        record_count=len(made),
        base_offset=0,
        last_offset=last,
        timestamp_ms=batch.base_timestamp_ms,
        is_log_append_time=False,
        first_offset=data.draw(st.integers(0, last)),
        until_offset=data.draw(st.integers(0, last + 2)),
    )
    builders = [choose(name).RowBuilder(columns, target_bytes, 0) for name in names()]
    position, index = 61, 0
    while True:
        went = {builder.append(section, position, index) for builder in builders}
        assert len(went) == 1
        position, index = went.pop()
        first, second = (plain(builder.finish()) for builder in builders)
        assert first == second
        if index == len(made):
            return


def plain(value: object) -> object:
    """Buffers as bytes."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value if value is None or isinstance(value, int) else bytes(memoryview(value))  # type: ignore[arg-type]


def test_forced_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in (("python", "plain"), ("compiled", "_native")):
        monkeypatch.setenv(ENVIRONMENT, name)
        assert choose().__name__ == f"rlm_spark.decode.{module}"


def test_buffers_outlive_their_builder() -> None:
    builder = choose("compiled").RowBuilder(1 << 1, 100, 0)
    batch = Batch(base_offset=0, last_offset=0, records=(Rec(offset=0, value=b"v" * 5_000),))
    data = batch.encode()
    section = Section(data, len(data), 1, 0, 0, 0, False, 0, 9)
    assert builder.append(section, 61, 0) == (len(data), 1)
    buffer = pa.py_buffer(builder.finish()[2][3])  # type: ignore[index]
    del builder, data, section
    assert buffer.to_pybytes() == b"v" * 5_000
