"""A cluster that has something of everything that the console shows."""

from typing import Any

from kip405.ids import Uuid
from kip405.segments import CustomMetadata
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from tests.rlm.console.served import ShownCluster, ranges, row, service

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
NOW_MS = 1_795_600_000_000
HOSTILE = "<img/src=x onerror=document.title='broken-in'>"
"""A name that would be markup, were it put into the page as such."""
SEGMENT_ID = str(Uuid(bytes([5]) * 16))
"""The segment of orders-1 with offsets 50,000 to 60,000."""


def sample_cluster() -> ShownCluster:
    """Three brokers; `orders` has every kind of part, `clicks` is large, `payments` well."""
    status = pb.StatusResponse(
        partitions=[*_orders(), *_clicks(), row("payments", 0, **_sizes(40 * GIB, 2 * GIB))],
        services=_services(),
        readers=[pb.ReaderStatus(grpc_address="10.0.0.9:19093", version="0.9", alive=True)],
        problems=_problems(),
        freezes=[
            pb.Freeze(topic="audit", stopped="trims, deletions", by="ann", why="legal", since_ms=1)
        ],
        deletions=_deletions(),
    )
    return ShownCluster(
        status=status,
        topics={
            "orders": pb.TopicDescription(
                topic="orders",
                mode="tier",
                state="enabled",
                trim=True,
                retention_ms=5 * 365 * 86_400_000,
                retention_bytes=-1,
                local_retention_ms=86_400_000,
                local_retention_bytes=-2,
                min_insync_replicas=2,
                offload=pb.Offload(copy_lag_ms=3_600_000, copy_lag_bytes=-1),
            )
        },
        segments=_segments(),
        explanation=pb.Explanation(
            sentences=[
                "Offsets 0 to 8,400,000 are remote, and 6,200,000 to 9,100,000 on broker 1.",
                "Kafka clients get all of them through the proxy.",
                "Nothing more is copied now: the next segment is not closed.",
            ]
        ),
        clients=_clients(),
        events=_events(),
        deletions=_deletions(),
        costs=pb.CostsResponse(
            currency="EUR",
            storage_per_gib_month=0.021,
            put_per_1000=0.005,
            get_per_1000=0.0004,
            topics=[
                pb.TopicGrowth(topic="orders", remote_bytes=2 * TIB, bytes_a_day=40 * GIB),
                pb.TopicGrowth(
                    topic="clicks",
                    remote_bytes=128 * TIB,
                    bytes_a_day=TIB,
                    requests_a_day=90_000,
                ),
            ],
            reads=[pb.StoreReads(node_id=1, requests=70_000, within_ms=86_400_000)],
        ),
    )


def _clients() -> pb.ListClientsResponse:
    return pb.ListClientsResponse(
        clients=[
            pb.KafkaClient(
                principal="User:etl",
                client_id=HOSTILE,
                address="10.0.1.7",
                software=["apache-kafka-java 4.1.0"],
                groups=["etl-nightly"],
                connections=6,
                topics=[
                    pb.ClientTopic(topic="orders", remote_bytes=3 * GIB, local_bytes=GIB),
                    pb.ClientTopic(topic="payments", local_bytes=9 * MIB),
                ],
            )
        ],
        problems=[pb.ClientsProblem(node_id=3, problem="connection refused")],
        proxied_groups=[_group("etl-nightly", {0: 2_000_000, 1: 9_100_000})],
        direct_groups=[_group(HOSTILE, {0: 5_000_000, 2: 8_500_000, 3: 7})],
        share_starts=[pb.GroupPosition(partition=4, offset=7_000_000)],
    )


def _group(name: str, offsets: dict[int, int]) -> pb.DirectGroup:
    rows = [pb.GroupPosition(partition=one, offset=offset) for one, offset in offsets.items()]
    return pb.DirectGroup(group=name, positions=rows)


def _sizes(remote: int, local: int, lag: int = 0) -> dict[str, Any]:
    return {"remote_size_bytes": remote, "local_size_bytes": local, "lag_bytes": lag}


def _orders() -> list[fetch_pb2.PartitionDescription]:
    usual = {
        "remote_next_offset": 8_400_000,
        "local_log_start_offset": 6_200_000,
        "log_end_offset": 9_100_000,
        "high_watermark": 9_100_000,
        "last_stable_offset": 9_099_000,
        "remote_segments": 840,
    }
    holes = ranges((1_200_000, 1_500_000))
    copying = ranges((8_400_000, 8_600_000))
    return [
        row("orders", 0, **usual, **_sizes(800 * GIB, 290 * GIB)),
        row(
            "orders",
            1,
            **(usual | {"lag_segments": 5}),
            **_sizes(800 * GIB, 290 * GIB, 5 * GIB),
            hole_ranges=holes,
            holes=1,
            hole_offsets=300_000,
            unfinished_copies=copying,
            unfinished_copy_bytes=GIB,
            leader=2,
        ),
        row(
            "orders",
            2,
            **(usual | {"local_log_start_offset": 8_700_000}),
            **_sizes(800 * GIB, 40 * GIB, 12 * GIB),
            leader=3,
            frozen="the leader's log contradicts what is remote from offset 8,400,000 on",
            alarms=["frozen: the leader's log contradicts what is remote"],
        ),
        fetch_pb2.PartitionDescription(
            topic="orders",
            partition=3,
            leader=-1,
            leader_epoch=-1,
            remote_log_start_offset=-1,
            remote_next_offset=-1,
            local_log_start_offset=-1,
            last_stable_offset=-1,
            high_watermark=-1,
            log_end_offset=-1,
            last_error="no leader",
        ),
        row(
            "orders",
            4,
            **(usual | {"remote_next_offset": -1, "remote_segments": 0}),
            **_sizes(0, 290 * GIB, 289 * GIB),
            remote_log_start_offset=6_200_000,
        ),
    ]


def _clicks() -> list[fetch_pb2.PartitionDescription]:
    return [
        row(
            "clicks.of-a-very-long-name.with-many-parts.europe-west.production.v2",
            number,
            leader=1 + number % 3,
            remote_next_offset=90_000_000 + number * 7_000,
            local_log_start_offset=80_000_000,
            log_end_offset=100_000_000,
            **_sizes(2 * TIB, 200 * GIB, (number % 7) * 300 * MIB),
        )
        for number in range(64)
    ]


def _services() -> list[pb.ServiceStatus]:
    def store(problem: str = "") -> pb.StoreStatus:
        return pb.StoreStatus(
            name="hot",
            store_id=b"s" * 16,
            plugin="s3",
            uri="s3://kafka-archive/production",
            problem=problem,
            segments=140_512,
            size_bytes=131 * TIB,
        )

    def disk(free: int, full_in_ms: int | None) -> pb.LogDirStatus:
        return pb.LogDirStatus(
            path="/var/lib/kafka/data",
            size_bytes=4 * TIB,
            free_bytes=free,
            growth_bytes_per_second=9e6,
            full_in_ms=full_in_ms,
            untrimmable_bytes=3 * GIB,
        )

    def copying(left: int) -> pb.CopyingStatus:
        return pb.CopyingStatus(
            segments_left=left,
            bytes_left=left * GIB,
            bytes_per_second=48 * MIB,
            left_ms=left * 21_000,
            limit_bytes_per_second=200 * MIB,
        )

    verification = pb.RunningVerification(
        topic="orders",
        deep=True,
        progress=pb.VerifyProgress(
            segments=310, segments_total=840, size_bytes=300 * GIB, size_total_bytes=800 * GIB
        ),
    )
    return [
        service(
            1,
            stores=[store()],
            log_dirs=[disk(2 * TIB, 190_000_000)],
            copying=copying(5),
            verifications=[verification],
        ),
        service(
            2,
            health="alarm",
            stores=[store("connection refused by s3.example:443")],
            log_dirs=[disk(TIB // 2, 61_000_000)],
            copying=copying(40),
        ),
        pb.ServiceStatus(
            node_id=3,
            grpc_address="10.0.0.3:19093",
            heartbeat_age_ms=61_000,
            problems=["connection refused"],
        ),
    ]


def _problems() -> list[pb.Problem]:
    def one(severity: str, kind: str, subject: str, text: str, topic: str = "") -> pb.Problem:
        return pb.Problem(
            severity=severity,
            kind=kind,
            subject=subject,
            text=text,
            topic=topic,
            risk="none" if severity == "warning" else "at-risk",
            since_ms=NOW_MS - 840_000,
            node_ids=[2],
        )

    return [
        one(
            "alarm",
            "store-unavailable",
            "store hot",
            "connection refused by s3.example:443: nothing is copied to it; check its address",
        ),
        one(
            "alarm",
            "partition-frozen",
            "orders-2",
            "the leader's log contradicts what is remote: rlm explain orders -p 2 says where",
            "orders",
        ),
        one("warning", "log-dir-fills", "/var/lib/kafka/data", f"full in 17 h, {HOSTILE}"),
    ]


def _deletions() -> list[pb.PendingDeletion]:
    return [
        pb.PendingDeletion(
            kind="topic-disable",
            topic="clickstream-2021",
            by="User:ann",
            decided_ms=NOW_MS - 3_600_000,
            due_in_ms=82_800_000,
            segments=90,
            records=5_000_000,
            size_bytes=90 * GIB,
        )
    ]


def _segments() -> list[fetch_pb2.Segment]:
    return [
        fetch_pb2.Segment(
            topic="orders",
            segment_id=bytes([number]) * 16,
            store_id=b"s" * 16,
            start_offset=number * 10_000,
            next_offset=number * 10_000 + 10_000,
            size_bytes=GIB,
            max_timestamp_ms=NOW_MS - number * 600_000,
            state="COPY_SEGMENT_STARTED" if number > 79 else "COPY_SEGMENT_FINISHED",
            broker_id=1,
            leader_epochs=[fetch_pb2.EpochEntry(epoch=3, start_offset=0)],
            event_timestamp_ms=NOW_MS - number * 500_000,
            custom_metadata=CustomMetadata(store_id=Uuid(b"s" * 16)).encode(),
            objects_stem=f"orders-1/000000000000{number * 10_000:08}-AbCdEfGh",
        )
        for number in range(84)
    ]


def _events() -> pb.ListEventsResponse:
    def one(number: int, task: str, text: str, *, failed: bool = False) -> pb.TaskEvent:
        at_ms = NOW_MS - 9_000_000 + number * 60_000
        return pb.TaskEvent(
            node_id=1,
            number=number,
            at_ms=at_ms,
            task=task,
            topic="orders",
            partition=1,
            text=text,
            failed=failed,
        )

    return pb.ListEventsResponse(
        events=[
            one(1, "copy", "remote up to 100,000; the next segment is not closed"),
            one(2, "copy", f"put of {SEGMENT_ID} to {HOSTILE}: connection reset", failed=True),
            one(3, "trim", "trimmed up to 80,000"),
        ],
        sources=[
            pb.EventSource(node_id=1, newest=3),
            pb.EventSource(node_id=3, problem="connection refused"),
        ],
    )
