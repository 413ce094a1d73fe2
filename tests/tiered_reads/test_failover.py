"""Each offset is read once, from a tier that has it, in the order of the read mode. An offset that
no tier has is reported as lost exactly once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_reads.errors import ConnectorError
from tiered_reads.failover import Absent, Order, PieceIterator
from tiered_reads.stopping import Stop
from tiered_reads.values import DataLoss, Fetched, OffsetRange, TopicPartition

TOPIC_PARTITION = TopicPartition("t", 0)


@dataclass(slots=True)
class Tier:
    """Has the offsets of `spans`; each piece is at most `step` long and reaches beyond its end."""

    name: str
    spans: list[tuple[int, int]]
    step: int = 4
    is_certain: bool = True
    reads: list[tuple[int, int]] = field(default_factory=list)

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        self.reads.append((start_offset, end_offset))
        position = start_offset
        while position < end_offset:
            for start, end in self.spans:
                if start <= position < end:
                    after = min(end, position + self.step)
                    yield Fetched(
                        batches=self.name.encode(), start_offset=position, next_offset=after
                    )
                    position = after
                    break
            else:
                later = [start for start, _ in self.spans if start > position]
                raise Absent(
                    "not there",
                    next_offset=min(later, default=None),
                    is_certain=self.is_certain or bool(later),
                )


def pieces_and_losses(
    start: int,
    end: int,
    *tiers: Tier,
    authoritative: Tier | None = None,
    remote_end: int | None = None,
    settle_ms: int = 0,
) -> tuple[list[tuple[int, int, str]], list[tuple[int, int]]]:
    """(from, to, tier) of what was read with neighbours joined, and what was lost."""
    order = Order(
        readers=tiers, authoritative=authoritative, remote_end=remote_end, settle_ms=settle_ms
    )
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=start, end_offset=end)
    read: list[tuple[int, int, str]] = []
    lost: list[tuple[int, int]] = []
    position = start
    for item in PieceIterator(wanted, order, Stop()):
        assert item.start_offset == position
        if isinstance(item, DataLoss):
            lost.append((item.start_offset, item.end_offset))
            position = item.end_offset
            continue
        assert item.next_offset > position
        position = item.next_offset
        name = bytes(item.batches).decode()
        if read and read[-1][1:] == (item.start_offset, name):
            read[-1] = (read[-1][0], position, name)
        else:
            read.append((item.start_offset, position, name))
    assert position >= end
    return read, lost


def test_kafka_preferred_goes_back_to_kafka_at_its_log_start() -> None:
    kafka, remote = Tier("kafka", [(50, 100)]), Tier("remote", [(0, 70)], step=100)
    assert pieces_and_losses(10, 100, kafka, remote) == (
        [(10, 70, "remote"), (70, 100, "kafka")],
        [],
    )
    assert remote.reads == [(10, 50)]  # its last batch reaches beyond the failover offset


def test_the_failover_offset_is_exact_whatever_the_batches() -> None:
    kafka, remote = Tier("kafka", [(50, 100)]), Tier("remote", [(0, 70)], step=1)
    assert pieces_and_losses(10, 100, kafka, remote)[0] == [(10, 50, "remote"), (50, 100, "kafka")]


def test_remote_preferred_reads_kafka_from_the_remote_end_known_at_the_start() -> None:
    kafka, remote = Tier("kafka", [(50, 100)]), Tier("remote", [(0, 90)], step=5)
    assert pieces_and_losses(10, 100, remote, kafka, remote_end=70)[0] == [
        (10, 70, "remote"),
        (70, 100, "kafka"),
    ]


def test_remote_preferred_beyond_the_remote_end_falls_back_when_kafka_trimmed_meanwhile() -> None:
    kafka, remote = Tier("kafka", [(80, 100)]), Tier("remote", [(0, 90)])
    read, lost = pieces_and_losses(70, 100, remote, kafka, remote_end=60)
    assert read == [(70, 82, "remote"), (82, 100, "kafka")]
    assert lost == []


def test_a_hole_of_the_remote_tier_is_read_from_kafka_and_only_the_hole() -> None:
    kafka, remote = Tier("kafka", [(0, 100)]), Tier("remote", [(0, 40), (60, 90)], step=5)
    read, _ = pieces_and_losses(0, 90, remote, kafka, remote_end=90)
    assert read == [(0, 40, "remote"), (40, 60, "kafka"), (60, 90, "remote")]


def test_h15_a_hole_between_the_tiers_is_lost_and_nothing_else() -> None:
    kafka, remote = Tier("kafka", [(60, 100)]), Tier("remote", [(0, 40)], is_certain=False)
    authoritative = Tier("authoritative", [(0, 40), (60, 100)])
    read, lost = pieces_and_losses(10, 100, kafka, remote, authoritative=authoritative)
    assert read == [(10, 40, "remote"), (60, 100, "kafka")]
    assert lost == [(40, 60)]
    assert authoritative.reads == [(40, 60)]


def test_what_a_stale_reader_does_not_know_yet_comes_from_the_authoritative_reader() -> None:
    kafka, remote = Tier("kafka", [(60, 100)]), Tier("remote", [(0, 40)], is_certain=False)
    authoritative = Tier("authoritative", [(0, 100)])
    read, lost = pieces_and_losses(10, 100, kafka, remote, authoritative=authoritative)
    assert read == [(10, 40, "remote"), (40, 60, "authoritative"), (60, 100, "kafka")]
    assert lost == []


def test_nothing_is_lost_where_no_tier_is_certain() -> None:
    kafka, remote = Tier("kafka", [(60, 100)]), Tier("remote", [(0, 40)], is_certain=False)
    for authoritative in (None, Tier("authoritative", [(0, 40)], is_certain=False)):
        with pytest.raises(ConnectorError, match=r"no service could confirm .* has offset 40"):
            pieces_and_losses(10, 100, kafka, remote, authoritative=authoritative)


def test_a_range_that_ends_inside_of_what_is_lost() -> None:
    kafka, remote = Tier("kafka", [(60, 100)]), Tier("remote", [(0, 40)])
    assert pieces_and_losses(45, 55, kafka, remote) == ([], [(45, 55)])


def test_a_loss_says_where_data_is_again_also_beyond_the_range() -> None:
    kafka, remote = Tier("kafka", [(80, 100)]), Tier("remote", [(60, 90)])
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=5, end_offset=50)
    [loss] = PieceIterator(wanted, Order(readers=(kafka, remote)), Stop())
    assert isinstance(loss, DataLoss)
    assert (loss.start_offset, loss.end_offset, loss.resumes_at) == (5, 50, 60)


def test_what_the_remote_log_start_passed_by_is_lost_up_to_it() -> None:
    kafka, remote = Tier("kafka", [(80, 100)]), Tier("remote", [(30, 90)])
    read, lost = pieces_and_losses(10, 100, kafka, remote)
    assert lost == [(10, 30)]
    assert read[0][0] == 30


def test_after_a_final_denial_no_other_tier_is_read() -> None:
    class Cut:
        name = "kafka"

        def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
            yield from ()
            raise Absent("its log was cut", is_final=True)

    remote = Tier("remote", [(0, 100)])
    order = Order(readers=(Cut(), remote))
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=5, end_offset=9)
    [loss] = PieceIterator(wanted, order, Stop())
    assert isinstance(loss, DataLoss)
    assert (loss.start_offset, loss.end_offset, loss.resumes_at) == (5, 9, None)
    assert "its log was cut" in loss.reason
    assert remote.reads == []


def test_an_uncertain_end_is_asked_again_before_anything_is_lost() -> None:
    class Late(Tier):
        def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
            if len(self.reads) == 3:
                self.spans = [(0, 100)]
            return Tier.read(self, start_offset, end_offset, stop)

    late = Late("remote", [(0, 40)], is_certain=False)
    read, lost = pieces_and_losses(0, 100, late, settle_ms=60_000)
    assert read == [(0, 100, "remote")]
    assert lost == []


spans = st.lists(st.integers(0, 60), min_size=0, max_size=6, unique=True).map(
    lambda edges: list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
)


@given(
    spans, spans, st.integers(1, 9), st.integers(1, 9), st.booleans(), st.integers(0, 60), st.data()
)
@pytest.mark.parametrize("remote_first", [True, False])
def test_every_offset_is_read_once_or_lost_once(
    remote_first: bool,
    of_kafka: list[tuple[int, int]],
    of_remote: list[tuple[int, int]],
    kafka_step: int,
    remote_step: int,
    is_certain: bool,
    remote_end: int,
    data: st.DataObject,
) -> None:
    start = data.draw(st.integers(0, 60))
    end = data.draw(st.integers(start, 60))
    kafka = Tier("kafka", of_kafka, kafka_step)
    remote = Tier("remote", of_remote, remote_step, is_certain)
    tiers = (remote, kafka) if remote_first else (kafka, remote)
    both = Tier("authoritative", sorted({*of_kafka, *of_remote}))
    read, lost = pieces_and_losses(
        start, end, *tiers, authoritative=both, remote_end=remote_end if remote_first else None
    )

    def has(tier: Tier, offset: int) -> bool:
        return any(begin <= offset < stop for begin, stop in tier.spans)

    for begin, stop, name in read:
        tiers_of = {"kafka": [kafka], "remote": [remote], "authoritative": [kafka, remote]}[name]
        for offset in range(begin, stop):
            assert any(has(tier, offset) for tier in tiers_of)
    for begin, stop in lost:
        assert not any(has(tier, offset) for tier in tiers for offset in range(begin, stop))
