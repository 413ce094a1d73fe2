"""The order in which services are called, and the retry policy."""

import pytest

from kip405.errors import ErrorKind
from tiered_reads.endpoints import AVOIDED_FOR_MS, KNOWN_FOR_MS, Endpoint, Endpoints, RetryPolicy
from tiered_reads.errors import ServiceError
from tiered_reads.service_calls import Failure
from tiered_reads.values import TopicPartition

TOPIC_PARTITION = TopicPartition("t", 0)


class Time:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def cluster(time: Time) -> Endpoints:
    endpoints = Endpoints(["given:1"], time)
    endpoints.described(
        [
            Endpoint(address="b1:1", is_reader=False),
            Endpoint(address="b2:1", is_reader=False),
            Endpoint(address="r1:1", is_reader=True),
            Endpoint(address="r2:1", is_reader=True),
            Endpoint(address="r3:1", is_reader=True, heartbeat_age_ms=90_000),
        ]
    )
    return endpoints


def test_readers_first_for_the_remote_tier_and_the_one_without_heartbeats_last() -> None:
    found = cluster(Time()).for_remote(TOPIC_PARTITION)
    assert set(found[:2]) == {"r1:1", "r2:1"}
    assert set(found[2:4]) == {"b1:1", "b2:1"}
    assert found[-1] == "r3:1"


def test_no_reader_for_the_tail_and_the_leader_first() -> None:
    endpoints = cluster(Time())
    assert not {"r1:1", "r2:1", "r3:1"} & set(endpoints.for_leader(TOPIC_PARTITION))
    endpoints.leads(TOPIC_PARTITION, "b2:1")
    assert endpoints.for_leader(TOPIC_PARTITION)[0] == "b2:1"
    assert "b1:1" in endpoints.for_leader(TOPIC_PARTITION)


def test_partitions_spread_over_readers_and_each_has_its_own() -> None:
    endpoints = cluster(Time())
    firsts = {p: endpoints.for_remote(TopicPartition("t", p))[0] for p in range(20)}
    assert set(firsts.values()) == {"r1:1", "r2:1"}
    again = cluster(Time())
    assert firsts == {p: again.for_remote(TopicPartition("t", p))[0] for p in range(20)}


def test_what_failed_is_asked_last_for_a_while() -> None:
    time = Time()
    endpoints = cluster(time)
    first = endpoints.for_remote(TOPIC_PARTITION)[0]
    endpoints.failed(first)
    assert endpoints.for_remote(TOPIC_PARTITION)[-1] == first
    time.now += AVOIDED_FOR_MS + 1
    assert endpoints.for_remote(TOPIC_PARTITION)[0] == first
    endpoints.failed(first)
    endpoints.answered(first)
    assert endpoints.for_remote(TOPIC_PARTITION)[0] == first


def test_a_description_is_wanted_again_after_a_while() -> None:
    time = Time()
    endpoints = Endpoints(["a:1", "a:1"], time)
    due = [endpoints.is_due]
    endpoints.described([])
    due.append(endpoints.is_due)
    assert (
        endpoints.for_remote(TOPIC_PARTITION) == endpoints.for_leader(TOPIC_PARTITION) == ("a:1",)
    )
    time.now += KNOWN_FOR_MS
    due.append(endpoints.is_due)
    assert due == [True, False, True]


def policy_for(time: Time, *addresses: str, patience_ms: int = 10_000) -> RetryPolicy:
    endpoints = Endpoints(addresses, time)
    endpoints.described([])
    return RetryPolicy(
        endpoints,
        lambda: endpoints.for_leader(TOPIC_PARTITION),
        patience_ms=patience_ms,
        monotonic_ms=time,
        backoff_ms=lambda attempt: 100 * 2**attempt,
    )


AWAY = Failure(kind=ErrorKind.UNAVAILABLE, what="away")


def test_all_are_asked_before_anything_is_waited_for() -> None:
    retry_policy = policy_for(Time(), "a", "b", "c")
    waits = [
        (address := retry_policy.address(), retry_policy.failed(address, AWAY)) for _ in range(7)
    ]
    assert [address for address, _ in waits[:3]] == ["a", "b", "c"]
    assert [wait for _, wait in waits] == [0, 0, 100, 0, 0, 200, 0]


def test_a_busy_reader_is_waited_for_before_others_are_asked() -> None:
    retry_policy = policy_for(Time(), "a", "b")
    busy = Failure(kind=ErrorKind.BUSY, what="full")
    waits = [
        (address := retry_policy.address(), retry_policy.failed(address, busy)) for _ in range(5)
    ]
    assert waits == [("a", 100), ("a", 200), ("a", 0), ("b", 800), ("b", 1600)]


def test_progress_resets_all_counts() -> None:
    time = Time()
    retry_policy = policy_for(time, "a", patience_ms=1_000)
    for _ in range(5):
        time.now += 900
        retry_policy.failed("a", Failure(kind=ErrorKind.BUSY, what="full"))
        retry_policy.progressed("a")
    time.now += 950
    with pytest.raises(ServiceError, match="full; gave up after 950 ms"):
        retry_policy.failed("a", Failure(kind=ErrorKind.BUSY, what="full"))


@pytest.mark.parametrize(
    "kind", [ErrorKind.NOT_FOUND, ErrorKind.INVALID, ErrorKind.CORRUPT, ErrorKind.INTERNAL]
)
def test_what_is_not_retriable_is_final(kind: ErrorKind) -> None:
    with pytest.raises(ServiceError, match="no"):
        policy_for(Time(), "a", "b").failed("a", Failure(kind=kind, what="no"))


def test_the_leader_named_is_asked_next_even_if_it_is_not_listed() -> None:
    retry_policy = policy_for(Time(), "a", "b")
    fenced = Failure(kind=ErrorKind.FENCED, what="not me", leader_address="new")
    assert retry_policy.failed("a", fenced) == 0
    assert retry_policy.address() == "new"
