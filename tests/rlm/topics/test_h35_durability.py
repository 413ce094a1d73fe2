"""What brokers may lose of what they acknowledged is shown, and warned of (H35)."""

from collections.abc import Mapping

import pytest

from kip405.ids import Uuid
from rlm.broker.answers import PartitionDescription, TopicConfigValue, TopicDescription
from rlm.topics.rules import Durability, durability_of, durability_warnings


def config(**values: str | None) -> Mapping[str, TopicConfigValue]:
    return {
        name.replace("_", "."): TopicConfigValue(value=value, is_topic_level=False)
        for name, value in values.items()
    }


def topic(*replicas: int) -> TopicDescription:
    """Partitions with so many replicas each."""
    partitions = {
        number: PartitionDescription(
            partition=number, leader=1, leader_epoch=0, replicas=tuple(range(count)), isr=(1,)
        )
        for number, count in enumerate(replicas)
    }
    return TopicDescription(
        name="orders", topic_id=Uuid(b"\x01" * 16), internal=False, partitions=partitions
    )


@pytest.mark.parametrize(
    ("values", "durability"),
    [
        (
            {"min_insync_replicas": "2", "unclean_leader_election_enable": "false"},
            Durability(min_insync_replicas=2, unclean_leader_election=False),
        ),
        (
            {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"},
            Durability(min_insync_replicas=1, unclean_leader_election=True),
        ),
        ({}, Durability()),
        ({"min_insync_replicas": None, "unclean_leader_election_enable": None}, Durability()),
        ({"min_insync_replicas": "many", "unclean_leader_election_enable": "?"}, Durability()),
    ],
)
def test_h38_what_the_broker_does_not_say_is_not_known(
    values: dict[str, str | None], durability: Durability
) -> None:
    assert durability_of(config(**values)) == durability


@pytest.mark.parametrize(
    ("insync", "unclean", "replicas", "words"),
    [
        (2, False, (3,), []),
        (1, False, (3,), ["min.insync.replicas is 1 with 3 replicas"]),
        (1, False, (1, 2), ["min.insync.replicas is 1 with 2 replicas"]),
        (2, True, (3,), ["unclean.leader.election.enable is true"]),
        (1, True, (2,), ["min.insync.replicas is 1", "unclean.leader.election.enable is true"]),
        (1, True, (1, 1), []),
        (1, True, (), []),
        (None, None, (3,), []),
    ],
)
def test_h35_a_setting_that_may_lose_acknowledged_records_is_a_warning(
    insync: int | None, unclean: bool | None, replicas: tuple[int, ...], words: list[str]
) -> None:
    durability = Durability(min_insync_replicas=insync, unclean_leader_election=unclean)
    found = durability_warnings(durability, topic(*replicas))
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
