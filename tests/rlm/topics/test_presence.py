"""H7: who is asked about topic ids, and for what, over fake brokers."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from kip405.errors import Unavailable
from kip405.ids import Uuid
from rlm.broker.answers import TopicIdAnswer
from rlm.plans.topic_end import BrokerAnswer
from rlm.topics.presence import TopicPresence

LEDGER, ORDERS, CLICKS = (Uuid(bytes([one]) * 16) for one in (1, 2, 3))


class Broker:
    """Knows some ids; `asked` is each request."""

    def __init__(self, *known: Uuid) -> None:
        self.known = {LEDGER, *known}
        self.asked: list[list[Uuid]] = []
        self.is_silent = False

    async def topic_ids(self, topic_ids: Sequence[Uuid]) -> TopicIdAnswer:
        self.asked.append(list(topic_ids))
        if self.is_silent:
            raise Unavailable("no answer")
        return TopicIdAnswer(
            cluster_id="ours",
            error_codes={one: 0 if one in self.known else 100 for one in topic_ids},
            brokers=frozenset({1, 2, 3}),
        )


@dataclass
class Node:
    calls: Broker


class Others:
    """All brokers that are alive, our own among them."""

    def __init__(self, **brokers: Broker) -> None:
        self.nodes = {int(name[1:]): Node(calls=broker) for name, broker in brokers.items()}

    async def all(self) -> dict[int, Node]:
        return dict(self.nodes)


def codes(answers: Sequence[BrokerAnswer]) -> dict[int, dict[Uuid, int]]:
    return {one.node_id: dict(one.error_codes) for one in answers}


async def test_h07_what_our_broker_knows_is_asked_of_no_other() -> None:
    own, other = Broker(ORDERS, CLICKS), Broker()
    presence = TopicPresence(node_id=1, own=own, brokers=Others(n1=own, n2=other))
    answers = await presence.ask([ORDERS, CLICKS], LEDGER)
    assert codes(answers) == {1: {ORDERS: 0, CLICKS: 0, LEDGER: 0}}
    assert other.asked == []


async def test_h07_what_it_does_not_know_is_asked_of_all_with_the_ledger_topic() -> None:
    own, two, three = Broker(CLICKS), Broker(), Broker(ORDERS)
    presence = TopicPresence(node_id=1, own=own, brokers=Others(n1=own, n2=two, n3=three))
    answers = await presence.ask([ORDERS, CLICKS], LEDGER)
    assert codes(answers)[2] == {ORDERS: 100, LEDGER: 0}
    assert codes(answers)[3] == {ORDERS: 0, LEDGER: 0}
    assert own.asked == [[ORDERS, CLICKS, LEDGER]]
    assert two.asked == [[ORDERS, LEDGER]]


async def test_h07_a_broker_that_does_not_answer_is_no_witness() -> None:
    own, two = Broker(), Broker()
    two.is_silent = True
    presence = TopicPresence(node_id=1, own=own, brokers=Others(n1=own, n2=two))
    assert list(codes(await presence.ask([ORDERS], LEDGER))) == [1]
    own.is_silent = True
    with pytest.raises(Unavailable):
        await presence.ask([ORDERS], LEDGER)
