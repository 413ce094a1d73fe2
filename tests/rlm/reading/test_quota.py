"""Quotas on historical reads with a clock in hand: rates hold, and the right ones wait."""

import pytest

from rlm.reading.throttle import (
    MOST_PER_BYTE_MS,
    Bucket,
    BytePrice,
    ByteQuota,
    ProcessorQuota,
    ReadThrottle,
    ThrottleLimits,
    Wait,
)
from tests.builders.clock import ManualClock

MIB = 1 << 20


def byte_quota(*, service: int = 100 * MIB, client: int = 10 * MIB) -> ByteQuota:
    return ByteQuota(service_rate=service, client_rate=client, now_ms=0)


def test_a_bucket_fills_by_its_rate_up_to_a_second_of_it() -> None:
    bucket = Bucket(1_000, 0)
    assert bucket.wait_ms(0) == 0
    bucket.take(3_000, 0)  # a second's worth was there
    assert bucket.wait_ms(0) == 2_000
    assert bucket.wait_ms(1_500) == 500
    assert bucket.wait_ms(2_000) == 0
    bucket.take(1_000, 60_000)
    assert bucket.wait_ms(60_000) == 0
    bucket.take(500, 60_000)
    assert bucket.wait_ms(60_000) == 500
    bucket.take(-500, 60_000)
    assert bucket.wait_ms(60_000) == 0


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(1_000, 5_000)
    bucket.take(2_000, 5_000)
    assert [bucket.wait_ms(now_ms) for now_ms in (5_000, 4_000, 4_500)] == [1_000, 1_000, 500]


def test_who_takes_too_much_waits_and_others_do_not() -> None:
    bytes_quota = byte_quota()
    bytes_quota.take("backfill", 30 * MIB, 0)
    assert bytes_quota.wait("backfill", 0) == Wait(duration_ms=2_000, kind="client")
    assert bytes_quota.wait("other", 0) == Wait()
    bytes_quota.take("other", 5 * MIB, 0)
    assert bytes_quota.wait("other", 0) == Wait()
    assert bytes_quota.wait("backfill", 2_000) == Wait()


def test_the_rate_of_the_service_is_shared_and_held() -> None:
    rate = 10 * MIB
    shares = run(byte_quota(service=rate, client=1 << 40), ["greedy", "greedy", "modest"], 20_000)
    total = sum(shares.values())
    assert total == pytest.approx(20 * rate, rel=0.15)
    assert shares["modest"] > 0.7 * shares["greedy"]


def test_alone_a_client_has_all_of_the_services_rate() -> None:
    rate = 10 * MIB
    shares = run(byte_quota(service=rate, client=1 << 40), ["alone"], 20_000)
    assert shares["alone"] == pytest.approx(20 * rate, rel=0.1)


def test_new_names_are_no_way_around_the_services_rate() -> None:
    rate = 10 * MIB
    bytes_quota = byte_quota(service=rate, client=1 << 40)
    taken = 0
    for now_ms in range(0, 20_000, 10):
        name = f"id-{now_ms}"
        if not bytes_quota.wait(name, now_ms).duration_ms:
            bytes_quota.take(name, MIB, now_ms)
            taken += MIB
    assert taken <= 2 * 22 * rate
    assert not bytes_quota.wait("later", 60_000).duration_ms


def test_only_so_many_clients_are_remembered() -> None:
    bytes_quota = ByteQuota(service_rate=100 * MIB, client_rate=10 * MIB, now_ms=0, most_clients=3)
    for name in ("a", "b", "c", "a", "d"):
        bytes_quota.take(name, 20 * MIB, 0)
    assert len(bytes_quota) == 3
    assert bytes_quota.wait("a", 0).duration_ms  # took something lately
    assert not bytes_quota.wait("b", 0).duration_ms


def run(bytes_quota: ByteQuota, readers: list[str], end_ms: int) -> dict[str, int]:
    """Readers that take a MiB whenever they may; bytes by name."""
    taken = dict.fromkeys(readers, 0)
    for now_ms in range(0, end_ms, 10):
        for name in readers:
            if not bytes_quota.wait(name, now_ms).duration_ms:
                bytes_quota.take(name, MIB, now_ms)
                taken[name] += MIB
    return taken


def test_a_byte_costs_what_the_process_took_for_it() -> None:
    price = BytePrice(0, 0.0)
    price.moved(MIB)
    price.settle(100, 5.0)
    assert price.per_byte_ms == 0.0  # the window is not long enough yet
    price.moved(MIB)
    price.settle(250, 10.0)
    assert price.per_byte_ms * MIB == pytest.approx(5.0)
    price.moved(MIB)
    price.settle(5_000, 4_000.0)  # a pause: what others did in it is not the readers'
    assert price.per_byte_ms * MIB == pytest.approx(2.5)
    price.moved(MIB)
    price.settle(5_500, 4_400.0)
    assert price.per_byte_ms == MOST_PER_BYTE_MS


def serve(limit: float, *, others: float = 0.0, others_mib: float = 0.0) -> float:
    """Cores that a reader takes in two minutes, whose MiB costs 5 ms, beside others that take so
    many cores for so many MiB a second.
    """
    one = ProcessorQuota(cores=limit, now_ms=0, processor_ms=0.0)
    now_ms, read_ms = 0, 0
    while now_ms < 120_000:
        wait_ms = one.wait_ms(now_ms)
        one.take(MIB, now_ms, read_ms + others * now_ms)
        now_ms += wait_ms + 5
        read_ms += 5
        one.moved(MIB + round(others_mib * MIB * (wait_ms + 5) / 1000))
    return read_ms / now_ms


def test_reads_take_no_more_of_the_processor_than_they_may() -> None:
    assert serve(0.5) == pytest.approx(0.5, rel=0.1)
    assert serve(2.0) == pytest.approx(1.0)  # one thread cannot take more


def test_what_producers_take_is_not_the_reads() -> None:
    assert serve(0.5, others=0.9, others_mib=180.0) == pytest.approx(0.5, rel=0.1)


def test_beside_work_without_bytes_reads_wait_the_sooner_and_go_on() -> None:
    assert 0.12 < serve(0.5, others=0.9) < 0.5


LIMITS = ThrottleLimits(
    service_bytes_per_second=100 * MIB, client_bytes_per_second=10 * MIB, cores=1_000
)


async def test_streams_of_a_client_share_its_rate_and_wait_one_after_another() -> None:
    clock = ManualClock(0)
    throttle = ReadThrottle(LIMITS, clock, lambda: 0.0)
    for _ in range(50):
        await throttle.pace("spark", MIB, is_remote=True)
    assert clock.now == pytest.approx(3_900, abs=150)  # ten of them were the burst
    before = clock.now
    await throttle.pace("other", MIB, is_remote=True)
    await throttle.pace("spark", 500 * MIB, is_remote=False)
    assert clock.now == before
    counts = throttle.counts
    assert counts.given_bytes["api", "remote"] == 51 * MIB
    assert counts.given_bytes["api", "local"] == 500 * MIB
    assert counts.throttled_ms == {
        "service": 0,
        "client": before,
        "principal": 0,
        "processor": 0,
    }


async def test_the_processor_holds_streams_and_never_the_proxy() -> None:
    clock = ManualClock(0)
    limits = ThrottleLimits(
        service_bytes_per_second=1 << 40, client_bytes_per_second=1 << 40, cores=0.25
    )
    throttle = ReadThrottle(limits, clock, lambda: clock.now * 1.0)
    connection = throttle.connection()
    for _ in range(1_000):
        clock.advance(5)
        await throttle.pace("spark", MIB, is_remote=True)
        connection.spliced("consumer", MIB)
    assert throttle.counts.throttled_ms["processor"] > 1_000
    assert connection.wait_ms("consumer") == 0


async def test_what_a_cancelled_stream_did_not_get_is_not_counted() -> None:
    class Gone(Exception):
        pass

    class GoneClock(ManualClock):
        async def sleep_ms(self, duration_ms: float) -> None:
            raise Gone

    throttle = ReadThrottle(LIMITS, GoneClock(0), lambda: 0.0)
    await throttle.pace("spark", 20 * MIB, is_remote=True)
    for _ in range(10):
        with pytest.raises(Gone):
            await throttle.pace("spark", 20 * MIB, is_remote=True)
    assert throttle.counts.given_bytes["api", "remote"] == 20 * MIB
    assert throttle.connection().wait_ms("spark") == 0  # a consumer of that name is another client


def test_h23_a_connection_has_the_rate_of_a_client_whatever_ids_it_names() -> None:
    clock = ManualClock(0)
    throttle = ReadThrottle(LIMITS, clock, lambda: 0.0)
    first, second = throttle.connection(), throttle.connection()
    for number in range(20):
        first.spliced(f"id-{number}", MIB)
    assert first.wait_ms("one more") == 1_000
    assert second.wait_ms("one more") == 0
    second.spliced("shared", 20 * MIB)
    assert throttle.connection().wait_ms("shared") == 1_000
    clock.advance(1_000)
    assert first.wait_ms("one more") == 0


def test_what_held_a_reader_of_the_proxy_is_counted_by_its_quota() -> None:
    limits = ThrottleLimits(
        service_bytes_per_second=MIB, client_bytes_per_second=10 * MIB, cores=1.0
    )
    throttle = ReadThrottle(limits, ManualClock(0), lambda: 0.0)
    connection = throttle.connection()
    connection.spliced("one", 3 * MIB)
    assert connection.wait_ms("one") == 2_000
    connection.held(2_000)
    held = {"service": 2_000, "client": 0, "principal": 0, "processor": 0}
    assert throttle.counts.throttled_ms == held


def test_changed_quotas_count_for_those_who_are_known_too() -> None:
    clock = ManualClock(0)
    throttle = ReadThrottle(LIMITS, clock, lambda: 0.0)
    connection = throttle.connection()
    connection.known_as("ann")
    connection.spliced("one", 20 * MIB)
    assert connection.wait_ms("one") == 1_000
    throttle.change_limits(
        ThrottleLimits(
            service_bytes_per_second=200 * MIB,
            client_bytes_per_second=20 * MIB,
            cores=1.0,
            principal_bytes_per_second=MIB,
        )
    )
    clock.advance(100)
    assert throttle.wait("one").duration_ms == 400, "a debt stays, and is repaid twice as fast"
    assert throttle.wait("other").duration_ms == 0
    clock.advance(400)
    assert throttle.wait("one").duration_ms == 0
    connection.spliced("one", 3 * MIB)
    assert throttle.principal_wait_ms("ann") > 0


def test_a_connection_goes_by_a_changed_rate_whatever_ids_it_names() -> None:
    clock = ManualClock(0)
    throttle = ReadThrottle(LIMITS, clock, lambda: 0.0)
    connection = throttle.connection()
    for number in range(20):
        connection.spliced(f"id-{number}", MIB)
    assert connection.wait_ms("one more") == 1_000
    throttle.change_limits(
        ThrottleLimits(
            service_bytes_per_second=100 * MIB, client_bytes_per_second=5 * MIB, cores=1_000
        )
    )
    assert connection.wait_ms("one more") == 2_000
