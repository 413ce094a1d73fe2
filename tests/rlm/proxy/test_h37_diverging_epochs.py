"""H37: a client's last fetched epoch is checked as a broker with the whole log checks it.

The broker here holds a trimmed log whose epochs are cut with it, as LeaderEpochFileCache cuts them;
its twin holds everything. Through the proxy the first must answer as the second.
"""

from dataclasses import dataclass, field, replace

import pytest

from kafka_protocol.apis import FETCH, OFFSET_FOR_LEADER_EPOCH
from kafka_protocol.fetch import FetchPartition
from kip405.errors import Fenced, Unavailable
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.proxy.fetch_plan import EpochVerdict, check_epoch
from rlm.remote_log.mirrored import LeaderEpochs
from rlm.remote_log.tier import EpochEnd
from tests.rlm.proxy.fakes import (
    TOPIC,
    FakeBroker,
    FakeTier,
    Log,
    Value,
    World,
    asked,
    fetch_request,
    only,
    tier_partition,
    world,
)

LINEAGE = Lineage(
    (
        EpochEntry(epoch=3, start_offset=0),
        EpochEntry(epoch=5, start_offset=60),
        EpochEntry(epoch=9, start_offset=150),
    )
)
LOG_END = 200
OFFSETS = (0, 1, 40, 59, 60, 61, 80, 99, 100, 101, 149, 150, 151, 199, 200, 201)
EPOCHS = (-1, 0, 2, 3, 4, 5, 6, 8, 9, 10, 12)
UNDEFINED = (-1, -1)


@dataclass
class EpochBroker(FakeBroker):
    """Checks epochs by a lineage as Partition.readRecords and LeaderEpochFileCache do."""

    lineage: Lineage = field(default_factory=Lineage)

    def end_of(self, epoch: int) -> tuple[int, int]:
        return self.lineage.end_offset_for(epoch, LOG_END) or UNDEFINED

    def _partition(self, log: Log, asked: Value, room: int, *, is_first: bool) -> Value:
        answered = super()._partition(log, asked, room, is_first=is_first)
        epoch, offset = asked.get("last_fetched_epoch", -1), asked["fetch_offset"]
        if epoch < 0 or answered["error_code"] not in (0, 1):
            return answered
        found = self.end_of(epoch)
        if found == UNDEFINED or offset < log.start:
            return super()._partition(replace(log, error_code=1), asked, room, is_first=is_first)
        if found[0] < epoch or found[1] < offset:
            answered = super()._partition(
                log, {**asked, "fetch_offset": LOG_END}, room, is_first=is_first
            )
            answered["diverging_epoch"] = {"epoch": found[0], "end_offset": found[1]}
        return answered

    def _fetch_now(self, version: int, request: Value) -> tuple[Value, int, bool]:
        answer, size, is_final = super()._fetch_now(version, request)
        partitions = [one for topic in answer["responses"] for one in topic["partitions"]]
        is_final |= any("diverging_epoch" in one for one in partitions)  # it is not held
        return answer, size, is_final

    def epochs(self, request: Value) -> Value:
        [topic] = request["topics"]
        partitions = []
        for wanted in topic["partitions"]:
            epoch, end_offset = self.end_of(wanted["leader_epoch"])
            end = {"leader_epoch": epoch, "end_offset": end_offset}
            partitions.append({"partition": 0, "error_code": 0, **end})
        return {"topics": [{"topic": topic["topic"], "partitions": partitions}]}


def trimmed() -> EpochBroker:
    return EpochBroker(
        logs={(TOPIC, 0): Log(leader_epoch=9)},
        lineage=LINEAGE.from_start(100),
    )


def whole() -> EpochBroker:
    return EpochBroker(logs={(TOPIC, 0): Log(start=0, leader_epoch=9)}, lineage=LINEAGE)


def tier(**changes: object) -> FakeTier:
    epochs = LeaderEpochs(lineage=LINEAGE, log_end_offset=LOG_END, remote_log_start_offset=0)
    return FakeTier(partitions={0: tier_partition(**changes)}, epochs=epochs)


async def ask(w: World, offset: int, epoch: int, named: int = -1) -> Value:
    client = await w.connect()
    one = asked(offset, last_fetched_epoch=epoch, current_leader_epoch=named)
    request = fetch_request(12, one, max_wait_ms=2_000 if offset < LOG_END else 1)
    answer = only(await client.call(FETCH, 12, request))
    client.writer.close()
    return answer


def verdict_of(answer: Value) -> tuple[int, tuple[int, int], bool, int]:
    """What a client acts on: error, divergence, whether there are records, the high watermark."""
    diverging = answer["diverging_epoch"]
    return (
        answer["error_code"],
        (diverging["epoch"], diverging["end_offset"]),
        bool(answer["records"]),
        answer["high_watermark"],
    )


@pytest.mark.parametrize("named", [-1, 9])
@pytest.mark.parametrize("view_hidden", [False, True], ids=["known", "reactive"])
async def test_h37_epochs_are_compared_as_by_a_broker_with_the_whole_log(
    view_hidden: bool, named: int
) -> None:
    empty = FakeTier()
    async with world(tier(), trimmed()) as tiered, world(empty, whole()) as plain:
        tiered.tier.view_hidden = view_hidden
        differing = {}
        for offset in OFFSETS:
            for epoch in EPOCHS:
                answer = await ask(tiered, offset, epoch, named)
                wanted = await ask(plain, offset, epoch, named)
                is_start = wanted["records"].startswith(answer["records"])
                if verdict_of(answer) != verdict_of(wanted) or not is_start:
                    if view_hidden and offset == 100 and epoch < 5:
                        continue  # only the lineage shows it: see below
                    differing[offset, epoch] = verdict_of(answer), verdict_of(wanted)
        assert not differing


async def test_h37_a_divergence_that_the_cut_epochs_hide_is_found_by_the_lineage() -> None:
    """At the broker's log start its first epoch seems to begin there."""
    async with world(tier(), trimmed()) as w:
        assert verdict_of(await ask(w, 100, 3)) == (0, (3, 60), False, 200)
        assert verdict_of(await ask(w, 100, 5)) == (0, UNDEFINED, True, 200)
        assert w.tier.barriers == 1


async def test_h37_patched_partitions_are_asked_without_the_last_fetched_epoch() -> None:
    async with world(tier(), trimmed()) as w:
        assert verdict_of(await ask(w, 40, 3)) == (0, UNDEFINED, True, 200)
        [seen] = w.broker.requests(FETCH)
        [one] = seen["topics"][0]["partitions"]
        assert (one["fetch_offset"], one["last_fetched_epoch"]) == (200, -1)


async def test_h37_a_hole_is_asked_without_the_last_fetched_epoch() -> None:
    async with world(tier(remote_next_offset=80), trimmed()) as w:
        assert verdict_of(await ask(w, 90, 5)) == (0, UNDEFINED, True, 200)
        assert verdict_of(await ask(w, 90, 3)) == (0, (3, 60), False, 200)


async def test_h17_h37_no_divergence_is_reported_before_a_barrier() -> None:
    """The broker's cut epochs say (3, 100) for what ended at 60."""
    async with world(tier(), trimmed()) as w:
        w.tier.barrier_error = Unavailable("replaying")
        client = await w.connect()
        request = fetch_request(12, asked(120, last_fetched_epoch=3), max_wait_ms=50)
        assert verdict_of(only(await client.call(FETCH, 12, request))) == (0, UNDEFINED, False, 200)
        w.tier.barrier_error = None
        assert verdict_of(await ask(w, 120, 3)) == (0, (3, 60), False, 200)


async def test_h37_where_a_partition_is_frozen_behind_the_barrier_no_divergence_is_reported() -> (
    None
):
    """Nobody can say whether the broker's cut epochs, (3, 100), are right."""
    async with world(tier(), trimmed()) as w:
        w.tier.barrier_error = Fenced("frozen")
        client = await w.connect()
        request = fetch_request(12, asked(120, last_fetched_epoch=3), max_wait_ms=50)
        answer = only(await client.call(FETCH, 12, request))
        assert verdict_of(answer) == (56, UNDEFINED, False, 200)


@pytest.mark.usefixtures("short_first_moment")
async def test_h37_a_partition_that_is_frozen_behind_the_barrier_is_asked_for_once() -> None:
    """It has records, but not enough, beside a partition that the tier is still reading."""
    two = tier()
    two.partitions[1] = tier_partition(partition=1)
    two.gate.clear()
    two.barrier_error = Fenced("frozen")
    async with world(two, trimmed()) as w:
        client = await w.connect()
        doubtful = asked(100, 0, last_fetched_epoch=3)
        request = fetch_request(12, doubtful, asked(40, 1), max_wait_ms=1_000, min_bytes=1_000_000)
        answer = await client.call(FETCH, 12, request)
        first, second = answer["responses"][0]["partitions"]
        assert verdict_of(first) == (56, UNDEFINED, False, 200)
        assert verdict_of(second) == (0, UNDEFINED, False, 200)
        assert two.barriers == 1


async def test_h37_what_the_broker_still_knows_needs_no_barrier() -> None:
    """An end above its log start is between two epochs that it holds, or the log's end."""
    async with world(tier(), trimmed()) as w:
        w.tier.barrier_error = Unavailable("replaying")
        assert verdict_of(await ask(w, 170, 5)) == (0, (5, 150), False, 200)
        assert verdict_of(await ask(w, 201, 9)) == (0, (9, 200), False, 200)
        assert w.tier.barriers == 0


@pytest.mark.parametrize("changes", [{"frozen": True}, {"led_here": False}])
async def test_h37_the_brokers_answer_is_kept_where_there_is_no_lineage(
    changes: Value,
) -> None:
    async with world(tier(**changes), trimmed()) as w:
        assert verdict_of(await ask(w, 120, 3)) == (0, (3, 100), False, 200)
        assert verdict_of(await ask(w, 120, 5)) == (0, UNDEFINED, True, 200)
        assert w.tier.barriers == 0


@pytest.mark.usefixtures("short_first_moment")
async def test_h37_a_divergence_leaves_at_once_beside_what_is_not_ready() -> None:
    two = tier()
    two.partitions[1] = tier_partition(partition=1)
    two.gate.clear()
    async with world(two, trimmed()) as w:
        client = await w.connect()
        request = fetch_request(
            12, asked(40, 1), asked(80, 0, last_fetched_epoch=3), max_wait_ms=60_000
        )
        answer = await client.call(FETCH, 12, request)
        first, second = answer["responses"][0]["partitions"]
        assert verdict_of(first) == (0, UNDEFINED, False, 200)
        assert verdict_of(second) == (0, (3, 60), False, 200)


async def test_h37_a_new_leadership_is_asked_again_before_a_divergence_is_answered() -> None:
    """The view is of epoch 9; under epoch 11 the broker refuses to vouch for it."""
    async with world(tier(), trimmed()) as w:
        w.broker.logs[TOPIC, 0].leader_epoch = 11
        answer = await ask(w, 40, 3)
        assert answer["records"] or answer["error_code"] == 0
        offsets = [
            r["topics"][0]["partitions"][0]["last_fetched_epoch"] for r in w.broker.requests(FETCH)
        ]
        assert offsets[:2] == [-1, 3]


async def test_h37_ends_of_epochs_are_those_of_a_broker_with_the_whole_log() -> None:
    """All in one request: a partition that is named twice is answered twice."""
    asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": e} for e in range(12)]
    request = {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": asked}]}
    answers = []
    for broker, known in ((trimmed(), tier()), (whole(), FakeTier())):
        async with world(known, broker) as w:
            client = await w.connect()
            answer = await client.call(OFFSET_FOR_LEADER_EPOCH, 4, request)
            ends = answer["topics"][0]["partitions"]
            answers.append([(e["error_code"], e["leader_epoch"], e["end_offset"]) for e in ends])
    assert answers[0] == answers[1]
    assert len(answers[0]) == 12


@pytest.mark.parametrize(
    ("epoch", "offset", "end", "verdict"),
    [
        (-1, 5, None, EpochVerdict.CONSISTENT),
        (-1, 5, EpochEnd(leader_epoch=0, end_offset=0), EpochVerdict.CONSISTENT),
        (4, 5, None, EpochVerdict.CONSISTENT),
        (9, 5, None, EpochVerdict.CONSISTENT),
        (10, 5, None, EpochVerdict.UNKNOWN),
        (4, 60, EpochEnd(leader_epoch=4, end_offset=60), EpochVerdict.CONSISTENT),
        (4, 61, EpochEnd(leader_epoch=4, end_offset=60), EpochVerdict.DIVERGED),
        (4, 5, EpochEnd(leader_epoch=3, end_offset=60), EpochVerdict.DIVERGED),
    ],
)
def test_h37_verdicts(epoch: int, offset: int, end: EpochEnd | None, verdict: EpochVerdict) -> None:
    assert check_epoch(FetchPartition(0, -1, offset, epoch, 1, 0), 9, end) is verdict
