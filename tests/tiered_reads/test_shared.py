"""Clients shared by the tasks of a process, kept a while, closed once; errors that travel."""

import pickle
import threading

import pytest

from rlm_spark.errors import DataLossError
from tiered_reads.errors import ConnectorError, KafkaClientError, ServiceError, TopicChangedError
from tiered_reads.shared import Shared
from tiered_reads.stopping import Stop, Stopped


class Client:
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_one_for_all_and_closed_when_unused() -> None:
    clients: Shared[Client] = Shared()
    with clients.leased("a", Client) as first, clients.leased("a", Client) as second:
        assert first is second
        clients.close_idle()
        assert not first.closed
    with clients.leased("a", Client) as again:
        assert again is first
    clients.close_idle()
    clients.close_idle()
    assert (first.closed, second.closed) == (1, 1)
    with clients.leased("a", Client) as other:
        assert other is not first


def test_idle_ones_are_closed_when_another_is_taken() -> None:
    clients: Shared[Client] = Shared(idle_ms=0)
    with clients.leased("a", Client) as old:
        pass
    with clients.leased("b", Client):
        assert old.closed == 1


def test_one_that_cannot_be_closed_does_not_fail_the_next_lease() -> None:
    class Broken(Client):
        def close(self) -> None:
            raise OSError("broken")

    clients: Shared[Client] = Shared(idle_ms=0)
    with clients.leased("a", Broken):
        pass
    with clients.leased("b", Client) as other:
        assert not other.closed


def test_an_error_in_the_block_gives_the_client_back() -> None:
    clients: Shared[Client] = Shared()
    with pytest.raises(KeyError), clients.leased("a", Client) as first:
        raise KeyError
    clients.close_idle()
    assert first.closed == 1


def test_a_stop_wakes_what_waits_and_refuses_what_comes_later() -> None:
    stop, called = Stop(), []
    timer = threading.Timer(0.1, stop.set)
    with stop.running(lambda: called.append(1)):
        timer.start()
        with pytest.raises(Stopped):
            stop.wait(60_000)
    timer.join()
    stop.set()
    assert called == [1]
    with pytest.raises(Stopped), stop.running(list):
        pass


@pytest.mark.parametrize(
    "error",
    [
        ServiceError("UNAVAILABLE", "away"),
        KafkaClientError("no"),
        TopicChangedError("t", "recreated"),
        DataLossError("t", 1, 5, 9, "gone"),
    ],
)
def test_errors_cross_from_executor_to_driver(error: ConnectorError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
