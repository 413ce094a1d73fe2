"""Objects deleted in the store behind the ledger's back (a lifecycle rule, a hand): H11 and H25."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition

from kafka_protocol.error_codes import NONE, UNKNOWN_SERVER_ERROR
from kip405.ids import Uuid
from rlm_sandbox.stores.objects import S3Objects
from tests.builders.opened import opened
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.objects import RECORDS, finished_segments, names_of, objects_of
from tests.scenarios.raw import at_leader, fetch

pytestmark = pytest.mark.integration

_SEEN_AS_LOST_S = 120.0
_LOGGED = "UnknownError"  # what aiokafka says to -1
ON_S3 = pytest.mark.parametrize("one_broker", ["s3"], indirect=True)


def _delete(cluster: Cluster, topic: str, offset: int) -> str:
    """Delete the log object of the segment that begins there; its name."""
    objects = objects_of(cluster)
    [name] = [
        name
        for name in names_of(objects, topic)
        if name.endswith(RECORDS) and name.rpartition("/")[2].startswith(f"{offset:020}-")
    ]
    objects.delete([name])
    if isinstance(objects, S3Objects) and name.endswith(".pinterest-log"):
        _delete_versions(objects, f"/{topic}-0/{offset:020}.log")
    return name


def _delete_versions(objects: S3Objects, ending: str) -> None:
    """Every version of the one object whose name ends so, which is where its log is."""
    [name] = [name for name in objects.sizes() if name.endswith(ending)]
    where = {"Bucket": objects.bucket}
    for found in objects.client.list_object_versions(Prefix=name, **where)["Versions"]:
        objects.client.delete_object(Key=name, VersionId=found["VersionId"], **where)


@ON_S3
def test_h11_an_object_that_is_gone_is_copied_again_before_anything_is_trimmed(
    one: Cluster,
) -> None:
    topic = fresh("expired")
    one.create_topic(topic)
    one.enable(topic)
    one.rlm("freeze", topic, "--why", "copies go on, trims do not")
    try:
        rows = one.fill(topic, mib=5)
        one.wait_for(lambda: len(finished_segments(one, topic)) >= 4, "segments copied")
        second = finished_segments(one, topic)[1]
        _delete(one, topic, second.start_offset)
    finally:
        one.rlm("unfreeze", topic)

    def ids() -> list[Uuid]:
        found = finished_segments(one, topic)
        return [row.segment_id.id for row in found if row.start_offset == second.start_offset]

    one.wait_for(lambda: ids() not in ([], [second.segment_id.id]), "the segment copied again")
    one.wait_trimmed(topic, beyond=second.next_offset)
    one.wait_for(lambda: second.segment_id.id not in ids(), "the lost entry gone")
    assert len(ids()) == 1
    one.wait_for(lambda: one.status(topic)["alarms"] == [], "no alarm")
    assert_same(one.read_all(topic), rows)


async def _codes_at(client: RawClient, topic: str, offset: int) -> list[int]:
    """Error codes of fetches at an offset, up to the first that is not 0; none brings records."""
    codes: list[int] = []
    async with asyncio.timeout(_SEEN_AS_LOST_S):
        while not codes or codes[-1] == NONE:
            answer = await fetch(client, 11, topic, offset)
            assert not answer["records"]
            codes.append(answer["error_code"])
    return codes


async def _read_until_stuck(cluster: Cluster, topic: str, logged: Callable[[], bool]) -> list[int]:
    """Offsets that aiokafka reads from 0 until it has logged what is wrong; the last is where its
    position is then.
    """
    topic_partition = AioPartition(topic, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap, enable_auto_commit=False, auto_offset_reset="none"
    )
    async with opened(consumer):
        consumer.assign([topic_partition])
        consumer.seek(topic_partition, 0)
        offsets: list[int] = []
        async with asyncio.timeout(_SEEN_AS_LOST_S):
            while not logged():
                found = await consumer.getmany(timeout_ms=500)
                offsets += [record.offset for record in found.get(topic_partition, ())]
        return [*offsets, await consumer.position(topic_partition)]


@ON_S3
def test_h25_readers_of_a_lost_segment_get_an_error_they_log_until_the_loss_is_accepted(
    one: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = fresh("lost")
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=6)
    trimmed_to = one.wait_trimmed(topic, beyond=3 * 1024)
    lost = finished_segments(one, topic)[1]
    assert lost.next_offset <= trimmed_to
    _delete(one, topic, lost.start_offset)

    codes = at_leader(one, topic, lambda client: _codes_at(client, topic, lost.start_offset))
    assert set(codes) <= {NONE, UNKNOWN_SERVER_ERROR}
    alarms: list[str] = []

    def is_alarm() -> bool:
        alarms[:] = one.status(topic)["alarms"]
        return bool(alarms)

    one.wait_for(is_alarm, "an alarm")
    [alarm] = alarms
    assert str(lost.segment_id.id) in alarm

    def logged() -> bool:
        return any(_LOGGED in record.getMessage() for record in caplog.records)

    with caplog.at_level(logging.WARNING, logger="aiokafka"):
        offsets = asyncio.run(_read_until_stuck(one, topic, logged))
    assert offsets == list(range(lost.start_offset + 1))

    read = one.read_all(topic, start={0: lost.next_offset})
    assert_same(read, [row for row in rows if row.offset >= lost.next_offset])

    command = ("partition", "accept-loss", topic, "-p", "0")
    (shown,) = one.rlm_json(*command)["ranges"]
    assert (shown["start_offset"], shown["end_offset"]) == (lost.start_offset, lost.next_offset)
    one.rlm(*command, "--yes")
    one.wait_for(
        lambda: lost.segment_id not in [row.segment_id for row in finished_segments(one, topic)],
        "the lost entry gone",
    )
    kept = [row for row in rows if not lost.start_offset <= row.offset < lost.next_offset]
    assert_same(one.read_all(topic), kept)
    one.wait_for(lambda: one.status(topic)["alarms"] == [], "no alarm")
