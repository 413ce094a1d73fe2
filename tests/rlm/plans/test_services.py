"""Live services and rivals, by heartbeats."""

from kip405.ids import Uuid
from rlm.plans.services import Heartbeat, Rivals, heartbeats, live_nodes
from rlmm.settings_records import ServiceRecord
from tests.builders.clock import ManualClock
from tests.builders.ledger import OTHER_WRITER, OUR_WRITER, MemorySettings


def beat(node_id: int, offset: int, writer: Uuid = OTHER_WRITER) -> Heartbeat:
    return Heartbeat(node_id=node_id, writer=writer, offset=offset, heard_ms_ago=0)


def heard(node_id: int, heard_ms_ago: int | None) -> Heartbeat:
    return Heartbeat(node_id=node_id, writer=OUR_WRITER, offset=0, heard_ms_ago=heard_ms_ago)


def test_a_node_is_live_while_its_heartbeat_is_young() -> None:
    beats = [heard(1, 60), heard(2, 61), heard(3, None), heard(4, 0)]
    assert live_nodes(beats, max_age_ms=60) == {1, 4}


def test_h13_a_predecessors_last_heartbeat_is_no_rival() -> None:
    rivals = Rivals(1, OUR_WRITER)
    assert rivals.see([beat(1, 100)]) is None
    assert rivals.see([beat(1, 100), beat(1, 500, OUR_WRITER), beat(2, 900)]) is None


def test_h13_a_second_service_that_goes_on_beating_is_noticed() -> None:
    rivals = Rivals(1, OUR_WRITER)
    assert rivals.see([beat(1, 100)]) is None
    assert rivals.see([beat(1, 200, OUR_WRITER)]) is None
    assert rivals.see([beat(1, 300)]) == OTHER_WRITER


class Followed:
    """The settings topic as one process reads it; writers have clocks of their own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.settings = MemorySettings()
        self.settings.clock = self.clock

    def beat(self, node_id: int, *, clock_ahead_ms: int = 0) -> None:
        self.settings.now_ms = self.clock.now + clock_ahead_ms
        record = ServiceRecord(node_id=node_id, listen={}, advertised={}, version="1")
        self.settings.write(record, node_id=node_id)

    def live(self) -> frozenset[int]:
        beats = heartbeats(self.settings.view, self.clock.monotonic_ms())
        return live_nodes(beats, max_age_ms=60_000)


def test_h16_the_clock_of_the_writer_says_nothing_of_its_life() -> None:
    topic = Followed()
    topic.beat(1, clock_ahead_ms=86_400_000)
    topic.beat(2, clock_ahead_ms=-86_400_000)
    assert topic.live() == {1, 2}
    topic.clock.advance(60_001)
    assert topic.live() == frozenset()


def test_h16_our_own_wall_clock_says_nothing_of_it_either() -> None:
    topic = Followed()
    topic.beat(1)
    topic.clock.wall_ahead_ms = -86_400_000
    topic.clock.advance(60_001)
    assert topic.live() == frozenset()


def test_h18_what_was_there_before_we_came_is_no_sign_of_life() -> None:
    """The whole cluster stood still for a year: replayed last beats are the newest there is."""
    topic = Followed()
    topic.settings.is_replay = True
    topic.beat(1)
    topic.beat(2)
    topic.settings.is_replay = False
    assert topic.live() == frozenset()
    topic.beat(1)
    assert topic.live() == {1}


def test_h18_a_beat_that_is_read_late_is_as_old_as_the_log_says() -> None:
    """This process stood still: the dead service's last beat comes before the present ones."""
    topic = Followed()
    topic.settings.lags = True
    topic.beat(2)
    topic.clock.advance(9 * 3_600_000)
    topic.beat(1)
    topic.settings.catch_up()
    assert topic.live() == {1}


def test_h16_a_new_leader_of_the_topic_with_another_clock_revives_nobody() -> None:
    topic = Followed()
    topic.settings.broker_ahead_ms = 3_600_000
    topic.beat(2)
    topic.clock.advance(60_001)
    topic.settings.broker_ahead_ms = 0
    topic.beat(1)
    assert topic.live() == {1}


def test_h16_nobody_is_dead_for_good_after_a_clock_of_a_broker_was_set() -> None:
    topic = Followed()
    topic.beat(2)
    topic.settings.broker_ahead_ms = 3_600_000
    topic.beat(1)
    assert topic.live() == {1}
    topic.beat(2)
    topic.settings.broker_ahead_ms = 0
    topic.beat(1)
    assert topic.live() == {1, 2}


def test_h16_a_clock_that_is_off_by_more_than_a_minute_is_reported() -> None:
    topic = Followed()
    topic.beat(1)
    topic.beat(2, clock_ahead_ms=60_001)
    topic.beat(3, clock_ahead_ms=-60_000)
    topic.beat(4, clock_ahead_ms=-3_600_000)
    skews = [(skew.node_id, skew.skew_ms) for skew in topic.settings.view.clock_skews()]
    assert skews == [(2, 60_001), (4, -3_600_000)]
    topic.beat(2)
    assert [skew.node_id for skew in topic.settings.view.clock_skews()] == [4]
