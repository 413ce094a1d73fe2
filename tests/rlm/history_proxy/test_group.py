"""The membership of a consumer group: each request, in each state, and random histories."""

import random
from collections.abc import Mapping

import pytest

from kafka_protocol import error_codes as codes
from kafka_protocol.schema import Value
from rlm.history_proxy.group import Group, GroupState, JoinRequest

SESSION_MS, REBALANCE_MS = 10_000, 60_000
RANGE: Mapping[str, bytes] = {"range": b"subscription"}


class Answer:
    """What a request was answered; more than once is an error."""

    def __init__(self) -> None:
        self.value: Value | None = None

    def __call__(self, value: Value) -> None:
        assert self.value is None
        self.value = value

    @property
    def is_given(self) -> bool:
        return self.value is not None

    @property
    def error(self) -> int:
        assert self.value is not None
        error: int = self.value["error_code"]
        return error


class Asking:
    """A group and its clock."""

    def __init__(self) -> None:
        self.group = Group()
        self.now_ms = 0

    def join(
        self,
        member_id: str = "",
        *,
        new: str = "",
        protocols: Mapping[str, bytes] = RANGE,
        needs_id: bool = False,
        protocol_type: str = "consumer",
    ) -> Answer:
        answer = Answer()
        request = JoinRequest(
            member_id=member_id,
            new_member_id=new,
            needs_id=needs_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=protocol_type,
            protocols=protocols,
        )
        self.group.join(request, answer, self.now_ms)
        return answer

    def sync(self, member_id: str, generation: int, **assignments: bytes) -> Answer:
        answer = Answer()
        self.group.sync(member_id, generation, assignments, answer, self.now_ms)
        return answer

    def beat(self, member_id: str, generation: int) -> int:
        return self.group.heartbeat(member_id, generation, self.now_ms)

    def commit(self, member_id: str, generation: int) -> int:
        return self.group.may_commit(member_id, generation, self.now_ms)

    def state(self) -> GroupState:
        return self.group.state

    def later(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.group.expire(self.now_ms)

    def pair(self) -> None:
        """Members a, which leads, and b, both of them stable in generation 2."""
        assert self.join(new="a").error == codes.NONE
        assert self.sync("a", 1, a=b"all").value == {"error_code": 0, "assignment": b"all"}
        second = self.join(new="b")
        assert not second.is_given
        assert self.beat("a", 1) == codes.REBALANCE_IN_PROGRESS
        first = self.join("a")
        assert first.value is not None and second.value is not None
        assert [one["member_id"] for one in first.value["members"]] == ["a", "b"]
        assert (second.value["leader"], second.value["members"]) == ("a", [])
        waiting = self.sync("b", 2)
        assert not waiting.is_given
        assert self.sync("a", 2, a=b"1", b=b"2").value == {"error_code": 0, "assignment": b"1"}
        assert waiting.value == {"error_code": 0, "assignment": b"2"}
        assert self.state() is GroupState.STABLE


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_one_that_leaves_gives_way_to_the_others(asking: Asking) -> None:
    asking.pair()
    assert asking.group.leave("a", asking.now_ms) == codes.NONE
    assert asking.beat("b", 2) == codes.REBALANCE_IN_PROGRESS
    answer = asking.join("b")
    assert answer.value is not None
    assert (answer.value["generation_id"], answer.value["leader"]) == (3, "b")
    assert asking.group.leave("a", asking.now_ms) == codes.UNKNOWN_MEMBER_ID
    assert asking.group.leave("b", asking.now_ms) == codes.NONE
    assert (asking.state(), asking.group.size) == (GroupState.EMPTY, 0)


def test_a_member_without_heartbeats_is_removed(asking: Asking) -> None:
    asking.pair()
    asking.later(SESSION_MS - 1)
    assert asking.beat("b", 2) == codes.NONE
    asking.later(1)
    assert asking.beat("a", 2) == codes.UNKNOWN_MEMBER_ID
    assert asking.beat("b", 2) == codes.REBALANCE_IN_PROGRESS
    assert asking.join("b").error == codes.NONE


def test_one_that_does_not_join_again_is_waited_for_only_so_long(asking: Asking) -> None:
    """It goes on with its heartbeats, as a client does that works on what it has."""
    asking.pair()
    third = asking.join(new="c")
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        assert third.value is None
        asking.beat("a", 2)
        asking.beat("b", 2)
        asking.later(SESSION_MS // 2)
    assert third.value is not None
    assert [one["member_id"] for one in third.value["members"]] == ["c"]
    for gone in ("a", "b"):
        assert asking.beat(gone, 3) == codes.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_says_who_has_what_is_removed(asking: Asking) -> None:
    asking.pair()
    rejoined = asking.join("a"), asking.join("b")
    assert [one.error for one in rejoined] == [codes.NONE, codes.NONE]
    waiting = asking.sync("b", 3)
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        assert waiting.value is None
        asking.beat("a", 3)
        asking.later(SESSION_MS // 2)
    assert waiting.error == codes.REBALANCE_IN_PROGRESS
    assert asking.beat("a", 3) == codes.UNKNOWN_MEMBER_ID
    answer = asking.join("b")
    assert answer.value is not None
    assert answer.value["leader"] == "b"


def test_former_generations_and_strangers_can_do_nothing(asking: Asking) -> None:
    asking.pair()
    assert asking.beat("a", 1) == codes.ILLEGAL_GENERATION
    assert asking.sync("a", 1).error == codes.ILLEGAL_GENERATION
    assert asking.commit("a", 1) == codes.ILLEGAL_GENERATION
    for generation in (-1, 2):
        assert asking.commit("x", generation) == codes.UNKNOWN_MEMBER_ID
    assert asking.commit("", -1) == codes.UNKNOWN_MEMBER_ID
    assert asking.sync("x", 2).error == codes.UNKNOWN_MEMBER_ID
    assert asking.join("x").error == codes.UNKNOWN_MEMBER_ID
    assert asking.commit("b", 2) == codes.NONE
    asking.join("a")
    assert asking.state() is GroupState.PREPARING
    assert asking.commit("b", 2) == codes.NONE, "before it gives its partitions away"
    assert asking.sync("b", 2).error == codes.REBALANCE_IN_PROGRESS
    asking.join("b")
    assert asking.state() is GroupState.COMPLETING
    assert asking.commit("b", 3) == codes.REBALANCE_IN_PROGRESS


def test_offsets_without_members_may_be_committed_by_anybody() -> None:
    assert Group().may_commit("", -1, 0) == codes.NONE


def test_an_answer_that_was_lost_is_given_again(asking: Asking) -> None:
    asking.pair()
    again = asking.join("b")
    assert again.value is not None
    assert (again.value["generation_id"], again.value["members"]) == (2, [])
    assert asking.sync("b", 2).value == {"error_code": 0, "assignment": b"2"}
    assert asking.state() is GroupState.STABLE
    changed = asking.join("b", protocols={"range": b"another subscription"})
    assert changed.value is None
    assert asking.state() is GroupState.PREPARING
    replaced, changed = changed, asking.join("b")
    assert replaced.error == codes.REBALANCE_IN_PROGRESS
    assert changed.value is None


def test_one_that_lost_its_first_answer_leaves_nobody_behind(asking: Asking) -> None:
    answer = asking.join(new="a", needs_id=True)
    assert answer.value is not None
    assert (answer.error, answer.value["member_id"]) == (codes.MEMBER_ID_REQUIRED, "a")
    assert asking.group.size == 1
    other = asking.join(new="b")
    assert other.value is None, "the one that was given an id is waited for"
    asking.later(SESSION_MS)
    assert other.error == codes.NONE
    assert asking.join("a").error == codes.UNKNOWN_MEMBER_ID
    given = asking.join(new="c", needs_id=True)
    assert given.error == codes.MEMBER_ID_REQUIRED
    joined = asking.join("c")
    assert joined.value is None
    asking.join("b")
    assert joined.error == codes.NONE


def test_members_need_a_protocol_in_common(asking: Asking) -> None:
    none: Mapping[str, bytes] = {}
    assert asking.join(new="x", protocols=none).error == codes.INCONSISTENT_GROUP_PROTOCOL
    first = asking.join(new="a", protocols={"sticky": b"s", "range": b"r"})
    assert first.value is not None
    assert first.value["protocol_name"] == "sticky"
    for wrong in ({"protocols": {"other": b""}}, {"protocol_type": "connect"}):
        found = asking.join(new="x", **wrong)
        assert found.error == codes.INCONSISTENT_GROUP_PROTOCOL
    second = asking.join(new="b", protocols={"range": b"r", "sticky": b"s"})
    third = asking.join(new="c", protocols={"range": b"r"})
    asking.join("a", protocols={"sticky": b"s", "range": b"r"})
    for one in (second, third):
        assert one.value is not None
        assert one.value["protocol_name"] == "range"


class History:
    """Members that do at random what clients do, and more."""

    def __init__(self, seed: int) -> None:
        self.asking = Asking()
        self.asked: list[Answer] = []
        self.synced: list[tuple[str, int, Answer]] = []
        self._chance = random.Random(seed)
        self._ids = [f"m{number}" for number in range(5)]
        self._generations = dict.fromkeys(self._ids, 0)

    def assignment(self, member: str, generation: int) -> bytes:
        """What a leader of this generation gives."""
        return f"{member} {generation}".encode()

    def step(self) -> None:
        member, what = self._chance.choice(self._ids), self._chance.random()
        generation = self._generations[member]
        if what < 0.35:
            is_known = self.asking.beat(member, -5) != codes.UNKNOWN_MEMBER_ID
            self.asked.append(self.asking.join(member if is_known else "", new=member))
        elif what < 0.7:
            parts = {one: self.assignment(one, generation) for one in self._ids}
            answer = self.asking.sync(member, generation, **parts)
            self.asked.append(answer)
            self.synced.append((member, generation, answer))
        elif what < 0.75:
            self.asking.group.leave(member, self.asking.now_ms)
        elif what < 0.9:
            self.asking.beat(member, generation)
        else:
            self.asking.later(self._chance.choice((500, SESSION_MS // 2, REBALANCE_MS)))
        self._learn()

    def _learn(self) -> None:
        for answer in self.asked:
            if answer.value is not None and answer.value.get("generation_id"):
                self._generations[answer.value["member_id"]] = answer.value["generation_id"]


@pytest.mark.parametrize("seed", range(20))
def test_random_histories(seed: int) -> None:
    """Each request is answered once, and within the timeouts; nobody in a generation has what the
    leader gave to somebody else.
    """
    history = History(seed)
    for _ in range(300):
        history.step()
    for _ in range(10):
        history.asking.later(REBALANCE_MS)
    assert all(answer.value is not None for answer in history.asked)
    group = history.asking.group
    assert (group.state, group.size) == (GroupState.EMPTY, 0)
    is_given = False
    for member, generation, answer in history.synced:
        if answer.error == codes.NONE and answer.value is not None:
            assert answer.value["assignment"] == history.assignment(member, generation)
            is_given = True
    assert is_given
