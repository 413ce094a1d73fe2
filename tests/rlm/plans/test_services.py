"""Live services and rivals, by heartbeats."""

from kip405.ids import Uuid
from rlm.plans.services import Heartbeat, Rivals, live_nodes
from tests.builders.ledger import OTHER_WRITER, OUR_WRITER


def beat(node_id: int, time_ms: int, writer: Uuid = OTHER_WRITER) -> Heartbeat:
    return Heartbeat(node_id=node_id, writer=writer, time_ms=time_ms)


def test_a_node_is_live_while_its_heartbeat_is_young() -> None:
    beats = [beat(1, 100), beat(2, 99)]
    assert live_nodes(beats, now_ms=160, max_age_ms=60) == {1}


def test_h13_a_predecessors_last_heartbeat_is_no_rival() -> None:
    rivals = Rivals(1, OUR_WRITER)
    assert rivals.see([beat(1, 100)]) is None
    assert rivals.see([beat(1, 100), beat(1, 500, OUR_WRITER), beat(2, 900)]) is None


def test_h13_a_second_service_that_goes_on_beating_is_noticed() -> None:
    rivals = Rivals(1, OUR_WRITER)
    assert rivals.see([beat(1, 100)]) is None
    assert rivals.see([beat(1, 200, OUR_WRITER)]) is None
    assert rivals.see([beat(1, 300)]) == OTHER_WRITER
