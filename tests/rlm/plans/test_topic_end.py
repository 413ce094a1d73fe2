"""H7 as tables: which answers are evidence, who may end a topic, and which step is due."""

import pytest

from kip405.ids import Uuid
from kip405.segments import RemotePartitionDeleteState as State
from rlm.plans.topic_end import (
    BrokerAnswer,
    EndLimits,
    EndStep,
    Occasions,
    chosen_node,
    described_by,
    doubt,
    needs_operator,
    next_step,
    unknown_everywhere,
)

LEDGER, ORDERS, CLICKS = (Uuid(bytes([one]) * 16) for one in (1, 2, 3))
MARKED, STARTED, FINISHED = State
LIMITS = EndLimits(max_topics=1, max_share_percent=50)


def answer(
    node_id: int,
    *,
    ledger: int | None = 0,
    orders: int | None = 100,
    cluster: str | None = "ours",
    brokers: tuple[int, ...] = (1, 2, 3),
) -> BrokerAnswer:
    codes = {LEDGER: ledger, ORDERS: orders}
    return BrokerAnswer(
        node_id=node_id,
        cluster_id=cluster,
        error_codes={one: code for one, code in codes.items() if code is not None},
        brokers=frozenset(brokers),
    )


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ((answer(1), answer(2)), None),
        ((answer(1), answer(2), answer(3)), None),
        ((answer(1, brokers=(1,)),), None),
        ((answer(1), answer(2, orders=29)), None),
        ((), "0 brokers answered, 1 are needed"),
        ((answer(1),), "1 brokers answered, 2 are needed"),
        ((answer(1, brokers=(1, 2)),), "1 brokers answered, 2 are needed"),
        ((answer(1, orders=0),), None),
        ((answer(1, orders=0, cluster="theirs"),), "broker 1 belongs to cluster theirs"),
        ((answer(1), answer(2, cluster="theirs")), "broker 2 belongs to cluster theirs"),
        ((answer(1, cluster=None), answer(2)), "broker 1 belongs to cluster None"),
        ((answer(1), answer(2, ledger=29)), "broker 2 does not describe the ledger topic"),
        ((answer(1), answer(2, ledger=100)), "broker 2 does not describe the ledger topic"),
        ((answer(1), answer(2, ledger=None)), "broker 2 does not describe the ledger topic"),
    ],
)
def test_h07_which_answers_count(answers: tuple[BrokerAnswer, ...], why: str | None) -> None:
    found = doubt(answers, cluster_id="ours", ledger_topic_id=LEDGER)
    assert (found is None) if why is None else (why in str(found))


@pytest.mark.parametrize(
    ("codes", "is_unknown"),
    [
        ((100, 100), True),
        ((100,), True),
        ((100, 0), False),
        ((100, 29), False),
        ((100, 3), False),
        ((100, None), False),
        ((29, 29), False),
        ((), False),
    ],
)
def test_h07_only_unknown_topic_id_of_every_broker_counts(
    codes: tuple[int | None, ...], is_unknown: bool
) -> None:
    answers = [answer(number, orders=code) for number, code in enumerate(codes)]
    assert unknown_everywhere(answers, [ORDERS]) == ({ORDERS} if is_unknown else set())
    assert described_by(answers, ORDERS) == tuple(
        number for number, code in enumerate(codes) if code == 0
    )


def test_h07_two_occasions_a_grace_apart_without_another_answer() -> None:
    once = Occasions().followed_by([ORDERS], 1_000)
    assert once.proven(1_000, 500) == frozenset()
    assert once.followed_by([ORDERS], 1_499).proven(1_499, 500) == frozenset()
    assert once.followed_by([ORDERS, CLICKS], 1_500).proven(1_500, 500) == {ORDERS}
    again = once.followed_by([], 1_200).followed_by([ORDERS], 1_400)
    assert again.proven(1_600, 500) == frozenset()


@pytest.mark.parametrize(
    ("topics", "size_bytes", "all_bytes", "why"),
    [
        (1, 50, 100, None),
        (1, 0, 0, None),
        (2, 0, 100, "2 topics"),
        (1, 51, 100, "51 %"),
        (1, 5, 5, "100 %"),
    ],
)
def test_h07_much_at_once_needs_an_operator(
    topics: int, size_bytes: int, all_bytes: int, why: str | None
) -> None:
    found = needs_operator(topics=topics, size_bytes=size_bytes, all_bytes=all_bytes, limits=LIMITS)
    assert (found is None) if why is None else (why in str(found))


@pytest.mark.parametrize(
    ("states", "age_ms", "step"),
    [
        ((None,), 0, EndStep.MARK),
        ((MARKED, None), 9_999, EndStep.MARK),
        ((FINISHED, None), 9_999, EndStep.MARK),
        ((MARKED, MARKED), 99, EndStep.WAIT),
        ((MARKED, STARTED), 99, EndStep.WAIT),
        ((FINISHED,), 99, EndStep.WAIT),
        ((MARKED, MARKED), 100, EndStep.DELETE),
        ((FINISHED, STARTED), 100, EndStep.DELETE),
        ((FINISHED, FINISHED), 100, EndStep.FORGET),
    ],
)
def test_which_step_is_due(states: tuple[State | None, ...], age_ms: int, step: EndStep) -> None:
    assert next_step(states, age_ms=age_ms, delay_ms=100) is step


def test_the_lowest_live_service_that_knows_the_stores_works() -> None:
    assert chosen_node({}, [ORDERS]) is None
    assert chosen_node({3: (ORDERS,), 2: (), 4: (ORDERS,)}, [ORDERS]) == 3
    assert chosen_node({3: (), 2: ()}, [ORDERS]) == 2
    assert chosen_node({3: (ORDERS,), 2: None}, [ORDERS]) == 2
    assert chosen_node({3: (ORDERS,), 2: ()}, []) == 2
