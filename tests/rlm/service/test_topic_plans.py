"""What a service measures of the partitions that its broker leads; it writes nothing."""

from pathlib import Path

from kip405.errors import Invalid, NotFound, RemoteStorageError
from kip405.ids import Uuid
from rlm.plans.enabling import PartitionMeasure
from rlm.plans.retention import LocalRetention
from rlm.service.topic_plans import TopicMeasures
from tests.builders.ledger import PARTITION
from tests.builders.rig import NODE_ID, Rig
from tests.builders.threads import THREADS

UNLIMITED = LocalRetention(max_age_ms=None, max_bytes=None)


def one_byte_parts(topic: str) -> int | None:
    return 1


def no_store(topic: str) -> int | None:
    raise Invalid("no store")


async def found(rig: Rig, node_id: int = NODE_ID, part_bytes: object = one_byte_parts) -> object:
    measures = TopicMeasures(
        node_id=node_id,
        scan=rig.log_dirs.scan,
        threads=THREADS,
        ledger=rig.ledger,
        settings=rig.settings,
        part_bytes=part_bytes,  # type: ignore[arg-type]  # one of the two above
        clock=rig.clock,
    )
    topic = await rig.broker.topic(PARTITION.topic)
    return (await measures.own(topic, UNLIMITED)).get(PARTITION.partition)


async def test_a_topic_that_is_not_enabled_is_measured_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.settings.remove(f"topic/{PARTITION.topic_id}")
    rig.write_log(0, 100, 250, end=300)
    records = rig.settings.view.next_offset
    one = await found(rig)
    assert isinstance(one, PartitionMeasure)
    size = sum(rig.disk.file(base, ".log").stat().st_size for base in (0, 100))
    assert (one.segments, one.size_bytes) == (2, size)
    assert one.requests == size + 2 * 4
    assert one.local_bytes == size + rig.disk.file(250, ".log").stat().st_size
    assert (rig.settings.view.next_offset, rig.ledger.log) == (records, [])


async def test_what_is_remote_does_not_count(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 250, end=300)
    await rig.copy.run(rig.led)
    one = await found(rig)
    assert isinstance(one, PartitionMeasure)
    assert (one.segments, one.size_bytes, one.requests) == (0, 0, 0)


async def test_partitions_that_others_lead_are_left_to_them(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=200)
    assert await found(rig, node_id=NODE_ID + 1) is None


async def test_h38_what_cannot_be_measured_is_an_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=200)
    (rig.disk.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {Uuid(b'x' * 16)}\n")
    assert isinstance(await found(rig), RemoteStorageError)
    for file in rig.disk.path.iterdir():
        file.unlink()
    rig.disk.path.rmdir()
    assert isinstance(await found(rig), NotFound)


async def test_without_a_store_each_object_is_one_request(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=200)
    one = await found(rig, part_bytes=no_store)
    assert isinstance(one, PartitionMeasure) and one.requests == 3
