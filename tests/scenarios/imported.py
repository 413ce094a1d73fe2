"""A bucket as Pinterest's uploader leaves it, of segments that a broker has really written.

Names follow from the layout's rules by code of this file alone, not by ours.
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from kip405.batches import batch_headers
from kip405.ids import Uuid
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.pinterest import indexes_of
from tests.scenarios.cluster import Cluster, Row
from tests.scenarios.test_restore import fill

THEIR_CLUSTER, PREFIX, BITS = "their-cluster", "kafka/tiered", 5
PARTITIONS = (0, 1)
ISOLATIONS = ("read_uncommitted", "read_committed")
_SUFFIXES = ("log", "index", "timeindex")
_ROLLED_MIB = 3
"""After the last marker: so much closes its segment, and a later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """A topic that a broker has, and the bucket with its closed segments below `root`. `rows`: what
    the broker itself gives of them, by isolation level.
    """

    topic: str
    root: Path
    ends: Mapping[int, int]
    rows: Mapping[str, list[Row]]

    def content(self) -> dict[str, tuple[bytes, int]]:
        """Every object with its bytes and the time of its last change."""
        return {
            path.relative_to(self.root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }

    def folder(self, partition: int) -> Path:
        return self.root / folder_of(self.topic, partition)

    def settings(self, bucket_row: Mapping[str, Any]) -> dict[str, Any]:
        """What a store needs to read them; `bucket_row`: the row with bucket or directory."""
        return {
            **bucket_row,
            "rsm.config.pinterest.prefix": PREFIX,
            "rsm.config.pinterest.cluster": THEIR_CLUSTER,
            "rsm.config.pinterest.entropy.bits": BITS,
        }


def folder_of(topic: str, partition: int) -> str:
    """[prefix/][bits/]cluster/topic-partition, the bits being the first ones of an MD5."""
    digest = hashlib.md5(f"{THEIR_CLUSTER}-{topic}-{partition}".encode()).digest()
    digits = "".join(f"{byte:08b}" for byte in digest)[:BITS]
    return f"{PREFIX}/{digits}/{THEIR_CLUSTER}/{topic}-{partition}"


def made_by_a_broker(cluster: Cluster, topic: str, root: Path) -> Theirs:
    """Two partitions with all codecs, headers, tombstones and transactions, uploaded; the first
    two logs of the second partition overlap.
    """
    cluster.create_topic(topic, partitions=len(PARTITIONS))
    fill(cluster, topic)
    for partition in PARTITIONS:
        cluster.fill(topic, mib=_ROLLED_MIB, partition=partition)
    ends = {one: upload(cluster, topic, one, root) for one in PARTITIONS}
    _overlap(root / folder_of(topic, PARTITIONS[1]))
    rows = {level: _read(cluster, topic, ends, level) for level in ISOLATIONS}
    assert len(rows["read_committed"]) < len(rows["read_uncommitted"])
    return Theirs(topic=topic, root=root, ends=ends, rows=rows)


def upload(cluster: Cluster, topic: str, partition: int, root: Path) -> int:
    """The files of every closed segment, then the watermark; answers where the open one begins."""
    (log_dir,) = cluster.sandbox.log_dirs(cluster.wait_led(topic, partition))
    source, target = log_dir / f"{topic}-{partition}", root / folder_of(topic, partition)
    target.mkdir(parents=True)
    *closed, active = sorted(source.glob("*.log"))
    assert len(closed) > 2
    for log in closed:
        for suffix in _SUFFIXES:
            file = log.with_suffix(f".{suffix}")
            shutil.copyfile(file, target / file.name)
    (target / "offset.wm").write_text(closed[-1].stem)
    return int(active.stem)


def _overlap(folder: Path) -> None:
    """In place of the second log one that begins in the middle of the first one, as that of a new
    leader, whose segments begin elsewhere.
    """
    first, second, *_ = sorted(folder.glob("*.log"))
    batches = list(batch_headers(first.read_bytes()))
    position, header = batches[len(batches) // 2]
    log = first.read_bytes()[position:] + second.read_bytes()
    files = (log, *indexes_of(header.base_offset, log))
    for suffix, data in zip(_SUFFIXES, files, strict=True):
        second.with_suffix(f".{suffix}").unlink()
        (folder / f"{header.base_offset:020d}.{suffix}").write_bytes(data)


def _read(cluster: Cluster, topic: str, ends: Mapping[int, int], level: str) -> list[Row]:
    options: dict[str, Any] = {"bootstrap": cluster.direct, "isolation.level": level}
    read = cluster.read_all(topic, end=ends, **options)
    return [row for row in read if row.offset < ends[row.partition]]


def plugin_file(path: Path, settings: Mapping[str, Any]) -> Path:
    """A plugin's file for `rlm import`, `rlm download` and `rlm restore`."""
    path.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", **settings}), encoding="utf-8")
    return path


def topic_id(cluster: Cluster, topic: str) -> Uuid:
    """The id that the topic has in the cluster."""
    asked = TopicCollection([topic])
    found = cluster.admin.describe_topics(asked)[topic].result(120).topic_id
    raw = (found.get_most_significant_bits() << 64) | found.get_least_significant_bits() % 2**64
    return Uuid((raw % 2**128).to_bytes(16))


def imported(cluster: Cluster, theirs: Theirs, config: Path) -> None:
    """`rlm import pinterest`: first dry, then in earnest, then again; nothing of theirs changes."""
    before = theirs.content()
    named = f"{theirs.topic}={topic_id(cluster, theirs.topic)}"
    command = ("import", "pinterest", "--plugin-config", str(config), "--topic", named)
    dry = cluster.rlm_json(*command, "--dry-run")
    logs = {one: len(list(theirs.folder(one).glob("*.log"))) for one in PARTITIONS}
    assert {row["partition"]: row["new_segments"] for row in dry["partitions"]} == logs
    done = cluster.rlm_json(*command, "--cluster-id", CLUSTER_ID)
    assert {row["partition"]: row["imported"] for row in done["partitions"]} == logs
    assert all(not row["warnings"] for row in done["partitions"])
    again = cluster.rlm_json(*command)
    assert all(row["new_segments"] == 0 for row in again["partitions"])
    assert theirs.content() == before


def offset_of_time(cluster: Cluster, topic: str, partition: int, timestamp_ms: int) -> int:
    """What the broker itself answers, past its proxy."""
    asked = {TopicPartition(topic, partition): OffsetSpec.for_timestamp(timestamp_ms)}
    (found,) = cluster.admin.list_offsets(
        asked, isolation_level=IsolationLevel.READ_UNCOMMITTED
    ).values()
    return int(found.result(120).offset)
