"""What the data paths of the console answer: shapes, unknown values, pages, bounds."""

import asyncio
import json
from typing import Any

import pytest

from kip405.ids import Uuid
from kip405.segments import CustomMetadata, Layout
from rlm.api.calls import Gate
from rlm.api.local_calls import LocalCaller
from rlm.clock import next_turn
from rlm.console import paging, rows
from rlm.console.answers import KEPT_MS, SEGMENTS_A_TURN, SEGMENTS_MAX
from rlm.plans.problems import ProblemKind
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from tests.rlm.console.served import ShownCluster, answers_of, console, ranges, row, service

MOST_BYTES = 512 << 10


def _stuck() -> pb.Problem:
    return pb.Problem(
        kind="nothing-copied",
        severity="alarm",
        subject="orders-1",
        text="nothing was copied for an hour",
        topic="orders",
        since_ms=5,
        node_ids=[2, 1],
        risk="at-risk",
    )


def _cluster() -> ShownCluster:
    status = pb.StatusResponse(
        partitions=[
            row("orders", 0, unfinished_copies=ranges((900, 950)), unfinished_copy_bytes=50),
            row("orders", 1, lag_bytes=70, frozen="orphans", alarms=["stuck"]),
            fetch_pb2.PartitionDescription(
                topic="clicks",
                partition=0,
                leader=-1,
                remote_log_start_offset=-1,
                remote_next_offset=-1,
                local_log_start_offset=-1,
                last_stable_offset=-1,
                high_watermark=-1,
                log_end_offset=-1,
                last_error="no leader",
            ),
        ],
        services=[
            service(
                1,
                stores=[pb.StoreStatus(name="hot", problem="connection refused")],
                log_dirs=[pb.LogDirStatus(path="/d", size_bytes=10, free_bytes=5)],
                copying=pb.CopyingStatus(segments_left=2, bytes_left=70),
                verifications=[
                    pb.RunningVerification(
                        topic="orders",
                        deep=True,
                        progress=pb.VerifyProgress(segments=3, segments_total=9),
                    )
                ],
            ),
            pb.ServiceStatus(node_id=2, heartbeat_age_ms=-1, problems=["it does not answer"]),
        ],
        readers=[pb.ReaderStatus(grpc_address="r:1", heartbeat_age_ms=-1)],
        problems=[_stuck()],
        freezes=[pb.Freeze(topic="orders", stopped="trims", by="ann", why="w", since_ms=4)],
        deletions=[
            pb.PendingDeletion(
                kind="retention",
                topic="orders",
                by="ann",
                decided_ms=-1,
                retention_ms=5,
                retention_bytes=-1,
            )
        ],
    )
    return ShownCluster(
        status=status,
        topics={"orders": pb.TopicDescription(topic="orders", mode="tier", state="enabled")},
    )


async def test_the_cluster_with_its_topics_services_and_what_happens() -> None:
    async with console(_cluster()) as shown:
        status, found = await shown.get("cluster")
    assert status == 200
    assert found["verdict"]["words"] == "AT RISK" and found["verdict"]["reason_count"] > 1
    clicks, orders = found["topics"]["rows"]
    assert (clicks["topic"], orders["topic"], found["topics"]["count"]) == ("clicks", "orders", 2)
    assert orders["problems"] == {"alarm": 1} and orders["frozen"] == 1
    assert (orders["lag_bytes"], orders["lag_unknown"], orders["copying_bytes"]) == (70, 0, 50)
    assert (clicks["lag_unknown"], clicks["local_unknown"], clicks["unexamined"]) == (1, 1, 1)
    assert (clicks["remote_unknown"], orders["remote_unknown"]) == (1, 0)
    assert found["totals"]["remote_unknown"] == 1
    assert found["totals"]["partitions"] == 3 and found["totals"]["topics"] == 2
    alive, silent = found["services"]
    assert alive["stores"][0]["problem"] == "connection refused"
    assert alive["log_dirs"][0]["growth"] is None and alive["copying"]["rate"] is None
    assert not silent["reachable"] and silent["heartbeat_age_ms"] is None
    assert silent["health"] is None and silent["copying"] is None
    [problem] = found["problems"]
    assert problem["kind"] == "nothing-copied" and problem["nodes"] == [1, 2]
    [copy] = found["copies"]
    assert copy["ranges"] == [[900, 950]] and copy["topic"] == "orders"
    [verification] = found["verifications"]
    assert verification["deep"] and verification["segments_total"] == 9
    assert found["freezes"][0]["topic"] == "orders"


async def test_a_topic_whose_tasks_fail_is_not_shown_as_well() -> None:
    """A failure is seen at once, and the problem that it becomes only later."""
    status = pb.StatusResponse(
        partitions=[
            row("orders", 0),
            row("orders", 1, last_error="Unavailable: Permission denied"),
            row("orders", 2, log_end_offset=-1, last_error="no leader"),
            row("well", 0),
        ]
    )
    async with console(ShownCluster(status=status)) as shown:
        _, found = await shown.get("cluster?sort=problems")
    orders, well = found["topics"]["rows"]
    assert (orders["failing"], orders["unexamined"], well["failing"]) == (1, 1, 0)


async def test_a_topic_with_its_partitions_and_what_is_unknown_of_them() -> None:
    async with console(_cluster()) as shown:
        _, orders = await shown.get("topic?topic=orders&sort=problems")
        _, clicks = await shown.get("topic?topic=clicks")
        status, _ = await shown.get("topic?topic=nothing")
        refused, _ = await shown.get("topic?topic=../x")
    assert [one["partition"] for one in orders["partitions"]["rows"]] == [1, 0]
    assert orders["description"]["mode"] == "tier" and orders["deletions"][0]["due_in_ms"] is None
    [lost] = clicks["partitions"]["rows"]
    unknown = ("leader", "remote_start", "remote_end", "local_start", "log_end", "lag_bytes")
    assert all(lost[name] is None for name in (*unknown, "local_bytes", "loss_in_ms"))
    unreported = ("remote_bytes", "remote_segments", "copying_bytes", "hole_count", "hole_offsets")
    assert all(lost[name] is None for name in unreported)
    assert lost["last_error"] == "no leader"
    assert clicks["description"] is None and "not enabled" in clicks["description_problem"]
    assert (status, refused) == (404, 400)


def test_what_is_remote_is_known_before_the_local_log_is_examined() -> None:
    found = rows.partition(row("orders", 0, log_end_offset=-1, holes=1, hole_offsets=4))
    assert (found["remote_bytes"], found["hole_offsets"]) == (9_000, 4)
    lost = rows.partition(
        row("orders", 0, log_end_offset=-1, remote_segments=0, holes=1, hole_offsets=4)
    )
    assert lost["hole_offsets"] == 4


async def test_a_partition_with_its_segments_and_an_explanation() -> None:
    cluster = _cluster()
    cluster.explanation = pb.Explanation(location="remote", sentences=["It is remote."])
    cluster.segments = [
        fetch_pb2.Segment(
            topic="orders",
            segment_id=bytes([number]) * 16,
            store_id=b"s" * 16,
            start_offset=number * 10,
            next_offset=number * 10 + 10,
            size_bytes=5,
            max_timestamp_ms=-1,
            state="COPY_SEGMENT_STARTED" if number == 4 else "COPY_SEGMENT_FINISHED",
        )
        for number in range(5)
    ]
    of = "topic=orders&partition=1"
    async with console(cluster) as shown:
        _, found = await shown.get(f"partition?{of}")
        _, segments = await shown.get(f"segments?{of}&from=15&count=2")
        _, copying = await shown.get(f"segments?{of}&state=COPY_SEGMENT_STARTED")
        _, explained = await shown.get(f"explanation?{of}&offset=7")
        refused = [
            (await shown.get(f"{path}?{of}&{wrong}"))[0]
            for path, wrong in (
                ("segments", "state=x"),
                ("segments", "from=-1"),
                ("segments", "count=100000"),
                ("explanation", "offset=%D9%A3"),
                ("explanation", f"offset={paging.INT64_MAX + 1}"),
                ("segments", f"from={paging.INT64_MAX + 1}"),
            )
        ] + [
            (await shown.get(f"{path}?topic=orders&partition={paging.INT32_MAX + 1}"))[0]
            for path in ("partition", "segments", "explanation")
        ]
        largest = f"explanation?topic=orders&partition={paging.INT32_MAX}&offset={paging.INT64_MAX}"
        assert (await shown.get(largest))[0] == 200
    assert found["row"]["frozen"] == "orphans" and found["problems"][0]["subject"] == "orders-1"
    assert [one["start"] for one in segments["rows"]] == [10, 20] and segments["count"] == 4
    assert segments["rows"][0]["newest_ms"] is None
    assert [one["start"] for one in copying["rows"]] == [40]
    assert explained["sentences"] == ["It is remote."] and explained["offset"] == 7
    assert refused == [400] * 9


def _copy_of(id_: int, start: int, end: int, state: str, **fields: Any) -> fetch_pb2.Segment:
    return fetch_pb2.Segment(
        topic="orders",
        partition=1,
        segment_id=bytes([id_]) * 16,
        start_offset=start,
        next_offset=end,
        state=state,
        **fields,
    )


async def test_what_is_known_of_one_segment() -> None:
    """Its own record, other copies of its offsets, and what its partition's tasks decided."""
    cluster, wanted = _cluster(), Uuid(bytes([1]) * 16)
    custom = CustomMetadata(store_id=Uuid(b"s" * 16), layout=Layout.BLOCKS)
    cluster.segments = [
        _copy_of(0, 0, 10, "COPY_SEGMENT_FINISHED"),
        _copy_of(2, 9, 11, "DELETE_SEGMENT_STARTED", broker_id=-1),
        _copy_of(
            1,
            10,
            20,
            "COPY_SEGMENT_FINISHED",
            broker_id=2,
            event_timestamp_ms=77,
            custom_metadata=custom.encode(),
            leader_epochs=[fetch_pb2.EpochEntry(epoch=3, start_offset=10)],
        ),
        _copy_of(3, 20, 30, "COPY_SEGMENT_FINISHED"),
    ]
    event = pb.TaskEvent(node_id=1, topic="orders", partition=1, text=f"put {wanted}", at_ms=5)
    other = pb.TaskEvent(node_id=1, topic="orders", partition=0, text="of another partition")
    cluster.events = pb.ListEventsResponse(
        events=[event, other], sources=[pb.EventSource(node_id=2, problem="it is away")]
    )
    of = "segment?topic=orders&partition=1"
    async with console(cluster) as shown:
        _, found = await shown.get(f"{of}&id={wanted}")
        _, gone = await shown.get(f"{of}&id={Uuid(bytes([9]) * 16)}")
        wrong = [(await shown.get(f"{of}&id={one}"))[0] for one in ("", "x", "x" * 5_000)]
        del cluster.events.sources[:]
        cluster.status.deletions[0].partition = 0
        shown.clock.advance(KEPT_MS)
        _, unseen = await shown.get(f"{of}&id={Uuid(bytes([2]) * 16)}")
        cluster.segments = [cluster.segments[0]] * (SEGMENTS_MAX + 1)
        many, _ = await shown.get(f"{of}&id={wanted}")
    row = found["row"]
    assert (row["recorded_ms"], row["broker"], row["layout"]) == (77, 2, "blocks")
    assert found["epochs"] == [[3, 10]] and found["epoch_count"] == 1
    assert [one["start"] for one in found["others"]] == [9]
    [said] = found["events"]
    assert said["names_it"] and said["at_ms"] == 5 and found["event_count"] == 1
    assert found["silent"] == [{"node_id": 2, "text": "it is away"}]
    assert len(found["deletions"]) == 1
    assert gone["row"] is None and wrong == [400] * 3 and many == 400
    old = unseen["row"]
    assert (old["recorded_ms"], old["broker"], old["layout"]) == (None, None, None)
    assert [one["start"] for one in unseen["others"]] == [0, 10]
    assert unseen["silent"] is None and unseen["deletions"] == []


async def test_clients_deletions_and_kinds_of_problems() -> None:
    cluster = _cluster()
    cluster.clients = pb.ListClientsResponse(
        clients=[
            pb.KafkaClient(
                client_id="<img src=x>",
                address="10.0.0.9",
                topics=[pb.ClientTopic(topic="orders", remote_bytes=5, local_bytes=7)],
            )
        ],
        problems=[pb.ClientsProblem(node_id=2, problem="it does not answer")],
    )
    cluster.deletions = cluster.status.deletions
    async with console(cluster) as shown:
        _, clients = await shown.get("clients?search=img")
        _, deletions = await shown.get("deletions")
        _, kinds = await shown.get("kinds")
    [client] = clients["clients"]["rows"]
    assert client["name"] == "<img src=x>" and client["principal"] is None
    assert (client["remote_bytes"], client["local_bytes"]) == (5, 7)
    assert client["topics"] == [{"topic": "orders", "remote_bytes": 5, "local_bytes": 7}]
    assert deletions["deletion_count"] == 1
    assert set(kinds["kinds"]) == {one.value for one in ProblemKind}


async def test_positions_of_groups_are_beside_the_offsets_of_their_partitions() -> None:
    """Those with the most left to read first, and those that nobody knows last."""

    def group(name: str, *positions: tuple[int, int]) -> pb.DirectGroup:
        rows = [pb.GroupPosition(partition=one, offset=offset) for one, offset in positions]
        return pb.DirectGroup(group=name, positions=rows)

    cluster = _cluster()
    cluster.clients = pb.ListClientsResponse(
        proxied_groups=[group("through", (0, 999), (7, 3))],
        direct_groups=[group("past", (0, 10), (1, 500))],
        share_starts=[pb.GroupPosition(partition=1, offset=400)],
    )
    async with console(cluster) as shown:
        _, all_topics = await shown.get("clients")
        assert shown.shown.asked == []
        _, found = await shown.get("clients?topic=orders")
        many = [(one % 2, one) for one in range(rows.LISTED_MAX + 5)]
        cluster.clients = pb.ListClientsResponse(direct_groups=[group("x" * 10_000, *many)])
        _, bounded = await shown.get("clients?topic=orders")
    order = [(one["group"], one["through"], one["offset"]) for one in found["positions"]]
    assert order == [
        ("past", "broker", 10),
        (None, None, 400),
        ("past", "broker", 500),
        ("through", "proxy", 999),
        ("through", "proxy", 3),
    ]
    assert set(found["partitions"]) == {"0", "1"} and found["position_count"] == 5
    assert found["partitions"]["0"]["log_end"] == 1_000
    assert found["partitions"]["0"]["copying"] == [[900, 950]]
    assert all_topics["partitions"] == {}
    assert len(bounded["positions"]) == rows.LISTED_MAX
    assert bounded["position_count"] == rows.LISTED_MAX + 5
    assert len(json.dumps(bounded)) < MOST_BYTES


async def test_ten_thousand_partitions_are_pages_of_a_bounded_size() -> None:
    long = "x" * 10_000
    status = pb.StatusResponse(
        partitions=[row("orders", number, last_error=long) for number in range(10_000)],
        problems=[pb.Problem(kind="other", subject=f"orders-{n}", text=long) for n in range(1_000)],
        services=[service(problems=[long] * 100)],
    )
    topics = {"orders": pb.TopicDescription(topic="orders")}
    async with console(ShownCluster(status=status, topics=topics)) as shown:
        _, cluster = await shown.get("cluster")
        _, first = await shown.get("topic?topic=orders&count=200")
        _, last = await shown.get("topic?topic=orders&start=9990&count=200")
        _, found = await shown.get("topic?topic=orders&search=777")
        refused, _ = await shown.get("topic?topic=orders&count=201")
    assert cluster["problem_count"] == 1_000 and len(cluster["problems"]) == rows.LISTED_MAX
    assert cluster["verdict"]["reason_count"] == 1_000
    assert len(first["partitions"]["rows"]) == 200 and first["partitions"]["count"] == 10_000
    assert [one["partition"] for one in last["partitions"]["rows"]] == list(range(9_990, 10_000))
    assert {one["partition"] for one in found["partitions"]["rows"]} >= {777, 1_777, 7_770}
    assert refused == 400
    for answer in (cluster, first, last):
        assert len(json.dumps(answer)) < 2 * MOST_BYTES


async def test_a_partition_with_very_many_segments_is_not_listed() -> None:
    """Whatever the status says of it: the service that leads it may be silent."""
    cluster = _cluster()
    cluster.segments = [fetch_pb2.Segment(topic="orders")] * (SEGMENTS_MAX + 1)
    async with console(cluster) as shown:
        status, found = await shown.get("segments?topic=orders&partition=1")
        assert status == 400 and "rlm segments orders -p 1" in found["error"]
        cluster.segments = cluster.segments[1:]
        status, _ = await shown.get("segments?topic=orders&partition=1")
        assert status == 200


async def test_others_have_their_turn_while_segments_are_listed() -> None:
    cluster = _cluster()
    cluster.segments = [fetch_pb2.Segment(topic="orders")] * SEGMENTS_MAX
    caller = LocalCaller(principal="console", shown=None, address="")
    asked = asyncio.ensure_future(
        answers_of(cluster, Gate()).answer("segments", {"topic": "orders"}, caller)
    )
    turns = 0
    while not asked.done():
        turns += 1
        await next_turn()
    assert turns >= SEGMENTS_MAX // SEGMENTS_A_TURN
    await asked


async def test_many_pages_ask_the_services_once_a_second() -> None:
    async with console(_cluster()) as shown:
        for _ in range(5):
            await shown.get("cluster")
            await shown.get("topic?topic=orders")
        assert shown.shown.asked == ["status", "status orders"]
        shown.clock.advance(KEPT_MS)
        await shown.get("cluster")
        assert shown.shown.asked == ["status", "status orders", "status"]


@pytest.mark.parametrize("query", ["count=0", "count=x", "start=-1", "start=1e3", "sort=colour"])
async def test_a_wrong_request_is_refused_with_its_reason(query: str) -> None:
    async with console(_cluster()) as shown:
        status, found = await shown.get(f"cluster?{query}")
    assert status == 400 and found["error"].startswith(query.split("=")[0])


def _growth(topic: str, gib: int, gib_a_day: int) -> pb.TopicGrowth:
    return pb.TopicGrowth(
        topic=topic, remote_bytes=gib << 30, bytes_a_day=gib_a_day << 30, requests_a_day=1_000
    )


async def test_costs_of_the_store_for_a_year() -> None:
    day_ms = 86_400_000
    found = pb.CostsResponse(
        currency="EUR",
        storage_per_gib_month=2.0,
        put_per_1000=0.5,
        get_per_1000=0.25,
        topics=[_growth("a", 10, 1), _growth("b", 20, 0)],
        reads=[pb.StoreReads(node_id=1, requests=4_000, within_ms=day_ms)],
    )
    async with console(ShownCluster(costs=found)) as shown:
        _, costs = await shown.get("costs")
        assert [row["topic"] for row in costs["topics"]["rows"]] == ["b", "a"]
        assert (costs["currency"], costs["missing"], len(costs["months"])) == ("EUR", [], 13)
        today, later = costs["months"][:2]
        assert today == {"storage": 60.0, "puts": 30.0, "gets": 30.0, "total": 120.0}
        assert (later["storage"], costs["months"][12]["storage"]) == (120.0, 60.0 + 12 * 60.0)
        [row] = (await shown.get("costs?search=a"))[1]["topics"]["rows"]
        assert (row["storage"], row["storage_later"], row["bytes_a_day"]) == (20.0, 80.0, 1 << 30)
        found.ClearField("put_per_1000")
        found.reads.add(node_id=2, problem="no answer")
        _, costs = await shown.get("costs")
    assert costs["missing"] == ["cost.put.per.1000"] and costs["problems"] == ["node 2: no answer"]
    today = costs["months"][0]
    assert today == {"storage": 60.0, "puts": None, "gets": None, "total": None}
