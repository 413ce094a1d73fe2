"""H36: the bound of memory as values: its parts, who waits for whom, and what a request counts."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kafka_protocol.apis import FETCH
from kafka_protocol.fetch import FetchRequests, patch_fetch_request
from kafka_protocol.frames import encode_request
from kip405.ids import Uuid
from rlm.proxy.account import ANSWER_TIMES, ANSWERED_AT_ONCE, WORK_TIMES, Account
from rlm.proxy.fetch_plan import FetchPlan, plan_fetch
from rlm.proxy.memory import SMALL_BYTES, ConnectionMemory, MemoryPool, Verdict
from rlm.proxy.session import SessionError
from rlm.remote_log.tier import TierPartition, TopicRef
from tests.rlm.proxy.fakes import asked, fetch_request, tier_partition
from tests.rlm.proxy.holders import Held, hold

MIB = 1 << 20
PART_BYTES = MIB
"""A sixteenth of the whole."""
WORK_BYTES, LEAST_ANSWERS_BYTES, MOST_ANSWERS_BYTES = 8 * MIB, 4 * MIB, 12 * MIB
PARTITIONS = 4_000


# one part


@dataclass
class Pool:
    """1,000,000 bytes."""

    pool: MemoryPool = field(default_factory=lambda: MemoryPool(lambda: 1_000_000))
    held: dict[Held, int] = field(default_factory=dict)

    def holding(self, size_bytes: int) -> Held:
        made = Held()
        self.hold(made, size_bytes)
        return made

    def hold(self, one: Held, size_bytes: int) -> None:
        self.held[one] = size_bytes
        if self.pool.hold(one, size_bytes):
            self.pool.wake()

    def leave(self, one: Held) -> None:
        self.pool.leave(one)
        self.pool.wake()

    def may(self, one: Held, more_bytes: int = 0, *, waits: bool = True) -> bool:
        return self.pool.may_hold(one, self.held.get(one, 0), more_bytes, waits=waits)


def test_h36_small_things_pass_and_large_ones_wait_once_a_part_is_full() -> None:
    one = Pool()
    full = one.holding(1_000_000)
    small, first, second = (one.holding(0) for _ in range(3))
    assert one.may(small, SMALL_BYTES)
    assert one.may(first, SMALL_BYTES + 1)
    assert not one.may(second, SMALL_BYTES + 1)
    assert one.pool.lacking_bytes > 0
    one.hold(full, 900_000)
    assert second.notified == 1
    assert one.may(second, SMALL_BYTES + 1)
    assert one.pool.lacking_bytes == 0


def test_h36_one_at_a_time_passes_the_bound_and_the_next_one_is_notified() -> None:
    one = Pool()
    one.holding(1_000_000)
    first, second, third = (one.holding(0) for _ in range(3))
    assert one.may(first, 500_000)
    one.hold(first, 500_000)
    for other in (second, third):
        assert not one.may(other, 500_000)
    assert one.may(first)
    assert (second.notified, third.notified) == (0, 0)
    one.leave(first)
    assert (second.notified, third.notified) == (1, 0)
    assert not one.may(Held(), 500_000)
    assert one.may(second, 500_000)
    one.hold(second, 500_000)
    one.hold(second, 0)
    assert third.notified == 1
    assert one.may(third, 500_000)


def test_h36_who_was_notified_and_is_gone_leaves_its_turn_to_the_next_one() -> None:
    one = Pool()
    one.holding(1_000_000)
    first, second, third = (one.holding(0) for _ in range(3))
    assert one.may(first, 500_000)
    for other in (second, third):
        assert not one.may(other, 500_000)
    one.leave(first)
    one.leave(second)
    assert third.notified == 1
    assert one.may(third, 500_000)


def test_h36_as_many_are_notified_as_have_room() -> None:
    """All of them would ask, each time anything is freed, for room that one has."""
    one = Pool()
    full, beyond = one.holding(1_000_000), one.holding(0)
    assert one.may(beyond, 20_000)
    one.hold(beyond, 20_000)
    waiting = [one.holding(0) for _ in range(10)]
    for other in waiting:
        assert not one.may(other, 100_000)
    one.hold(full, 780_000)
    assert [other.notified for other in waiting] == [1, 1, 1] + 7 * [0]  # one may exceed the part
    for other in waiting[:3]:
        assert one.may(other, 100_000)
        one.hold(other, 100_000)
    assert not one.may(waiting[3], 100_000)


def test_h36_who_may_receive_a_little_still_waits_for_the_much_it_asked_for() -> None:
    one = Pool()
    one.holding(1_000_000)
    first, second = one.holding(0), one.holding(100)
    assert one.may(first, 500_000)
    one.hold(first, 500_000)
    assert not one.may(second, 500_000)
    assert one.may(second)
    assert one.pool.lacking_bytes > 0
    one.leave(first)
    assert second.notified == 1


def test_h36_who_ends_before_it_was_counted_passes_the_bound_no_more() -> None:
    one = Pool()
    one.holding(1_000_000)
    first, second = Held(), Held()
    assert one.may(first, 500_000)
    assert not one.may(second, 500_000)
    one.leave(first)
    assert second.notified == 1
    assert one.may(second, 500_000)


def test_h36_who_passed_the_bound_between_two_reports_lets_the_next_one_pass() -> None:
    """Its answer came and went at once, so that it holds as much as before."""
    one = Pool()
    one.holding(1_000_000)
    first, second = Held(), Held()
    assert one.may(first, 20_000)
    assert not one.may(second, 20_000)
    one.hold(first, 0)
    assert second.notified == 1
    assert one.may(second, 20_000)


def test_h36_who_does_not_wait_exceeds_no_part() -> None:
    one = Pool()
    full = one.holding(1_000_000)
    other = one.holding(0)
    assert not one.may(other, 20_000, waits=False)
    assert one.pool.lacking_bytes == 0
    one.hold(full, 0)
    assert other.notified == 0


# all parts


def memory() -> ConnectionMemory:
    return ConnectionMemory(16 * PART_BYTES)


def full_of_requests(full: Held | None = None, beyond: Held | None = None) -> ConnectionMemory:
    """All parts of them are full, and one connection exceeds each."""
    known, beyond = memory(), beyond or Held()
    hold(known, full or Held(), received=2 * MIB, work=WORK_BYTES)
    assert known.may_receive(beyond, 3 * MIB) is Verdict.GO_ON
    assert known.may_work(beyond, 9 * MIB)
    hold(known, beyond, received=3 * MIB, work=9 * MIB)
    assert known.may_receive(Held(), MIB) is Verdict.WAIT
    assert not known.may_work(Held(), MIB)
    return known


def test_h36_an_answer_waits_for_no_memory_of_requests() -> None:
    known = full_of_requests()
    for _ in range(4):
        one = Held()
        assert known.may_answer(one, 0, MIB) is Verdict.GO_ON
        hold(known, one, answers=MIB)
    assert known.answers.held_bytes == LEAST_ANSWERS_BYTES
    assert known.may_answer(Held(), 0, MIB) is Verdict.GO_ON  # the one that exceeds the part
    assert known.may_answer(Held(), 0, MIB) is Verdict.WAIT


def test_h36_work_waits_for_no_memory_of_requests_that_are_received() -> None:
    known = memory()
    hold(known, Held(), received=10 * MIB)
    assert known.may_receive(Held(), MIB) is Verdict.GO_ON
    assert known.may_receive(Held(), MIB) is Verdict.WAIT
    assert known.may_work(Held(), WORK_BYTES)
    assert known.work._beyond is None


def test_h36_answers_take_what_work_leaves_and_the_whole_stays_within_the_bound() -> None:
    known = memory()
    one, other = Held(), Held()
    assert known.may_answer(one, 0, MOST_ANSWERS_BYTES) is Verdict.GO_ON
    hold(known, one, answers=MOST_ANSWERS_BYTES)
    assert known.answers._beyond is None
    assert known.may_work(other, MIB)  # as the one that exceeds its part
    assert not known.may_work(Held(), MIB)
    known.leave(other)
    hold(known, one, answers=LEAST_ANSWERS_BYTES)
    assert known.may_work(other, WORK_BYTES)
    hold(known, other, work=WORK_BYTES)
    assert known.work._beyond is None
    assert known.held_bytes <= WORK_BYTES + LEAST_ANSWERS_BYTES


def test_h36_work_that_waits_for_answers_is_notified_when_they_were_taken() -> None:
    known = memory()
    taken, first, second = Held(), Held(), Held()
    hold(known, taken, answers=MOST_ANSWERS_BYTES)
    assert known.may_work(first, MIB)
    assert not known.may_work(second, MIB)
    assert known.lacking_bytes > 0
    hold(known, taken, answers=0)
    assert second.notified == 1


def test_h36_who_is_not_known_to_the_broker_shares_a_sixteenth() -> None:
    known = memory()
    stranger = Held(is_admitted=False)
    hold(known, stranger, received=MIB - 50_000)
    assert known.may_receive(stranger, MIB - 50_000) is Verdict.GO_ON
    other = Held(is_admitted=False)
    hold(known, other, received=50_000)
    assert known.may_receive(other, 50_000) is Verdict.END
    assert known.may_receive(Held(), 50_000) is Verdict.GO_ON
    stranger.is_admitted = True
    known.admit(stranger)
    hold(known, stranger, received=MIB - 50_000)
    assert known.may_receive(other, 50_000) is Verdict.GO_ON


def test_h36_a_whole_request_of_a_stranger_waits_for_its_turn() -> None:
    known = memory()
    first, second, third = (Held(is_admitted=False) for _ in range(3))
    assert known.may_work(first, MIB)
    hold(known, first, work=MIB)
    assert known.may_work(second, MIB)
    hold(known, second, work=MIB)
    assert not known.may_work(third, MIB)
    assert known.may_receive(third, SMALL_BYTES) is Verdict.GO_ON
    assert known.lacking_bytes == 0  # no client that stalls holds what it waits for
    for one in (first, second):
        one.is_admitted = True
        known.admit(one)
    assert third.notified == 1


def test_h36_a_stranger_that_becomes_known_no_longer_waits_as_one() -> None:
    known = memory()
    hold(known, Held(is_admitted=False), work=MIB)
    beyond, waiting = (Held(is_admitted=False) for _ in range(2))
    assert known.may_work(beyond, MIB)
    hold(known, beyond, work=MIB)
    assert not known.may_work(waiting, MIB)
    waiting.is_admitted = True
    known.admit(waiting)
    assert waiting.notified == 1
    assert known.may_work(waiting, MIB)


def test_h36_what_was_held_is_given_back_exactly() -> None:
    known = memory()
    holders = [Held(is_admitted=n % 2 == 0) for n in range(5)]
    for n, one in enumerate(holders):
        hold(known, one, received=n, work=2 * n, answers=3 * n)
    for one in holders:
        one.is_admitted = True
        known.admit(one)
    for one in holders:
        hold(known, one, received=1, work=2, answers=4)
    assert known.held_bytes == 35
    for one in holders:
        known.leave(one)
    assert known.held_bytes == 0


# one connection


def working(known: ConnectionMemory, frame_bytes: int = 100_000) -> Account:
    one = Account(known, Held())
    assert one.may_work(FETCH.key, frame_bytes)
    report(one)
    return one


def report(one: Account, *, received: int = 0, assembled: int = 0, unsent: int = 0) -> None:
    one.report(
        received_bytes=received,
        to_broker_bytes=0,
        assembled_bytes=assembled,
        unsent_bytes=unsent,
    )


def full_of_answers() -> ConnectionMemory:
    """One more is about to exceed the part already."""
    known = memory()
    hold(known, Held(), answers=MOST_ANSWERS_BYTES)
    assert known.may_answer(Held(), 0, MIB) is Verdict.GO_ON
    return known


def test_h36_an_answer_without_records_waits_for_nothing() -> None:
    known = full_of_answers()
    one = Account(known, Held())
    one._work_bytes, one._covered_bytes = WORK_TIMES * 100_000, ANSWER_TIMES * 100_000
    report(one)
    assert one.may_read(0, has_request=True).of_broker
    assert one.may_assemble(200_000)
    report(one, assembled=200_000)
    assert known.answers.held_bytes == MOST_ANSWERS_BYTES
    one.answered(200_000)
    report(one)
    assert known.answers.held_bytes == MOST_ANSWERS_BYTES
    one.settled()
    report(one, unsent=200_000)
    assert known.answers.held_bytes == MOST_ANSWERS_BYTES + 200_000
    assert not one.may_assemble(SMALL_BYTES)


def test_h36_an_answer_with_records_counts_and_is_let_go_before_the_next_one() -> None:
    known = memory()
    one = working(known)
    assert one.may_assemble(MIB)
    one.answered(MIB)
    report(one)
    assert known.answers.held_bytes == MIB - 200_000
    one.asks()
    report(one)
    assert known.answers.held_bytes == 0
    assert known.work.held_bytes == WORK_TIMES * 100_000


def test_h36_what_the_broker_answers_at_once_counts_as_received_until_then() -> None:
    known = full_of_requests()
    received_bytes, work_bytes = known.received.held_bytes, known.work.held_bytes
    one = Account(known, Held())
    for api_key in ANSWERED_AT_ONCE:
        assert one.may_work(api_key, MIB)
        report(one)
        assert known.received.held_bytes == received_bytes + MIB
        assert known.work.held_bytes == work_bytes
        one.settled()
        report(one)
        assert known.received.held_bytes == received_bytes


def test_h36_a_request_that_waits_for_its_turn_counts_as_received() -> None:
    full, beyond = Held(), Held()
    known = full_of_requests(full, beyond)
    received_bytes = known.received.held_bytes
    one = Account(known, Held())
    assert not one.may_work(FETCH.key, MIB)
    report(one)
    assert known.received.held_bytes == received_bytes + MIB
    for other in (full, beyond):
        known.leave(other)
    assert one.may_work(FETCH.key, MIB // WORK_TIMES)
    report(one)
    assert known.received.held_bytes == 0


def test_h36_only_the_first_question_frees_nothing() -> None:
    one = working(memory())
    assert not one.asks()
    one.answered(MIB)
    assert one.asks()
    assert not one.asks()


def test_h36_a_client_whose_request_is_in_work_is_read_a_little_in_any_case() -> None:
    """Otherwise its end would be seen once its answer frees the memory for which it waits."""
    known = full_of_requests()
    one = Account(known, Held())
    for queued_bytes in (0, SMALL_BYTES - 1, SMALL_BYTES + 1):
        report(one, received=queued_bytes)
        may = one.may_read(queued_bytes, has_request=True)
        assert may.of_client is (queued_bytes < SMALL_BYTES)
        assert may.of_broker


def test_h36_what_is_not_held_here_ends_no_stranger() -> None:
    known = memory()
    hold(known, Held(is_admitted=False), received=MIB)
    one = Account(known, Held(is_admitted=False))
    one.report(received_bytes=0, to_broker_bytes=MIB, assembled_bytes=0, unsent_bytes=0)
    assert not one.may_read(0, has_request=False).of_client
    one.report(received_bytes=20_000, to_broker_bytes=MIB, assembled_bytes=0, unsent_bytes=0)
    with pytest.raises(SessionError, match="unknown to the broker"):
        one.may_read(0, has_request=False)


# what a request in work really takes


def whole_plan(version: int, view: Callable[[TopicRef, int], TierPartition | None]) -> object:
    """All that is kept while a Fetch of a tiered topic waits for the broker."""
    epochs = {"current_leader_epoch": 300} | ({"last_fetched_epoch": 299} if version >= 12 else {})
    partitions = [asked(10_000 + n, n, 1 << 20, **epochs) for n in range(PARTITIONS)]
    frame = encode_request(FETCH, version, 7, "consumer-1", fetch_request(version, *partitions))[4:]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        taken = bytearray(frame)
        _, request = FetchRequests().scan(taken)
        plan: FetchPlan = plan_fetch(request, view, lambda *_: None, ready=True, high_watermarks={})
        asking = patch_fetch_request(
            taken, request, sessionless=True, max_wait_ms=500, replacements=plan.replacements()
        )
        after, _ = tracemalloc.get_traced_memory()
        kept = (after - before) / len(frame)
        print(
            f"v{version}: {(after - before) / PARTITIONS:.0f} bytes a partition, {kept:.1f} times"
        )
        assert len(asking) == len(taken) and len(plan.partitions) == PARTITIONS
        return kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [11, 12, FETCH.versions.high])
def test_h36_a_request_in_work_counts_what_it_takes(version: int) -> None:
    view = tier_partition(topic_id=Uuid(bytes(16)))
    for known in (lambda *_: None, lambda *_: view):
        kept = whole_plan(version, known)
        assert isinstance(kept, float)
        assert 0.6 * (WORK_TIMES - ANSWER_TIMES) <= kept <= WORK_TIMES - ANSWER_TIMES
