"""SIGKILL of the service at random moments under load: nothing is lost, doubled or left behind.

SEED= runs the same moments again. The long one keeps its raw numbers under bench/results/.
"""

import json
import math
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pytest

from bench.machine import commit, load_in_words, machine_in_words
from kip405.crc import crc32c
from kip405.ids import Uuid
from rlm_sandbox.stores.objects import StoreObjects
from rlmm.ledger_values import decode_value
from rsm_plugins.layout.manifest import Manifest
from tests.scenarios.cluster import STORES, Cluster, assert_same, fresh
from tests.scenarios.ledger_reader import (
    FINISHED,
    LedgerReader,
    contiguous_finished_end,
)
from tests.scenarios.objects import MANIFEST, manifests, names_of, objects_of
from tests.scenarios.replicas import disk
from tests.scenarios.traffic import SteadyProducer

pytestmark = pytest.mark.integration

_RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
_PARTITIONS = (0, 1)
_LONGEST_LIFE_S = 4.0
_AFTER_READY = 0.75  # the rest of the kills come any time from the start of the process on
_KIB_PER_S = 1_500
_GRACE_S = 10.0
_SWEEP_S = 150.0  # a sweep runs every 5 s; the rest is for a loaded machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One partition at one kill: the broker's log start, sampled first, and the ledger's word."""

    kill: int
    lived_s: float
    partition: int
    log_start_offset: int
    finished_end: int
    unfinished: int


@pytest.fixture
def ledger(one: Cluster) -> Iterator[LedgerReader]:
    reader = LedgerReader(one)
    try:
        yield reader
    finally:
        reader.close()


_KILLS = (
    pytest.param(2, marks=pytest.mark.timeout(600)),
    pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
)


@pytest.mark.parametrize("kills", _KILLS)
@pytest.mark.parametrize("one_broker", STORES, indirect=True)
def test_killed_at_random_moments_under_load(
    one: Cluster, ledger: LedgerReader, kills: int
) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")
    topic = fresh("kills")
    one.create_topic(topic, partitions=len(_PARTITIONS))
    one.enable(topic)
    samples: list[Sample] = []
    with SteadyProducer(one, topic, list(_PARTITIONS), kib_per_s=_KIB_PER_S) as load:
        one.wait_trimmed(topic, 0)
        topic_id = disk(one, topic, 1).topic_id
        assert topic_id is not None
        chance = random.Random(seed)
        for number in range(kills):
            lived_s = chance.uniform(0.1, _LONGEST_LIFE_S)
            time.sleep(lived_s)
            one.sandbox.kill("rlm:1")
            samples += _samples(one, ledger, topic, topic_id, number, lived_s)
            one.sandbox.start("rlm:1", wait=chance.random() < _AFTER_READY)
    assert not load.failures, load.failures[:3]
    _keep(one, seed, kills, samples, len(load.rows))
    for sample in samples:
        assert sample.log_start_offset <= sample.finished_end, (seed, sample)
    rows = sorted(load.rows, key=lambda row: (row.partition, row.offset))
    assert_same(one.read_all(topic), rows)
    _assert_nothing_is_left(one, ledger, topic, topic_id)
    _assert_whole_objects(one, topic)


def _samples(
    cluster: Cluster, ledger: LedgerReader, topic: str, topic_id: Uuid, number: int, lived_s: float
) -> list[Sample]:
    starts = {partition: cluster.log_start(topic, partition) for partition in _PARTITIONS}
    ledger.read()
    samples = []
    for partition, start in starts.items():
        records = ledger.of(topic_id, partition)
        epoch = disk(cluster, topic, 1, partition).lineage.latest_epoch
        assert epoch is not None
        samples.append(
            Sample(
                kill=number,
                lived_s=round(lived_s, 3),
                partition=partition,
                log_start_offset=start,
                finished_end=contiguous_finished_end(records, epoch),
                unfinished=sum(one.state is not FINISHED for one in records),
            )
        )
    return samples


def _assert_nothing_is_left(
    cluster: Cluster, ledger: LedgerReader, topic: str, topic_id: Uuid
) -> None:
    """Only finished entries and their files: within the grace time and a sweep there is less of
    anything else, until there is nothing. How much there was depends on the machine: a copy that
    takes longer than its deadline leaves an attempt, too.
    """

    def unfinished() -> list[str]:
        ledger.read()
        records = ledger.of(topic_id)
        finished = {str(one.key.segment_id) for one in records if one.state is FINISHED}
        left = [f"{one.key}: {one.state}" for one in records if one.state is not FINISHED]
        left += [name for name in _files(cluster, topic) if not _is_of(name, finished)]
        return left + objects_of(cluster).unfinished()

    left: list[str] = []

    def are_fewer(than: float) -> bool:
        left[:] = unfinished()
        return len(left) < than

    cluster.wait_for(partial(are_fewer, math.inf), f"what is left on {topic} is known")
    while left:
        what = f"attempts on {topic} are swept, of {len(left)} {left[:3]} to {left[-1]}"
        cluster.wait_for(partial(are_fewer, len(left)), what, _GRACE_S + _SWEEP_S)


def _files(cluster: Cluster, topic: str) -> list[str]:
    return [name.rpartition("/")[2] for name in names_of(objects_of(cluster), topic)]


def _is_of(name: str, segment_ids: set[str]) -> bool:
    """Whether a file is `<20 digits>-<segment id>.<kind>` of one of these."""
    return name[21:].partition(".")[0] in segment_ids


def _assert_whole_objects(cluster: Cluster, topic: str) -> None:
    """H31: what the broker no longer has lies in objects of the right size and checksum.

    A kill between the manifest and the ledger leaves a segment with two copies, of which the
    service deletes one, be it while we look; the other one is read here.
    """
    starts = {partition: cluster.log_start(topic, partition) for partition in _PARTITIONS}
    objects = objects_of(cluster)
    whole = [
        decode_value(manifest.segment_metadata)
        for manifest in manifests(cluster, topic)
        if _is_whole(objects, manifest)
    ]
    covered = {partition: 0 for partition in _PARTITIONS}
    for metadata in sorted(whole, key=lambda one: one.start_offset):
        partition = metadata.segment_id.topic_id_partition.partition
        if metadata.start_offset <= covered[partition]:
            covered[partition] = max(covered[partition], metadata.next_offset)
    for partition, start in starts.items():
        assert covered[partition] >= start > 0


def _is_whole(objects: StoreObjects, manifest: Manifest) -> bool:
    """Whether all its objects are as it says; the store's error, or AssertionError, if not. False
    where it is gone itself by now: it is the first to be deleted.
    """
    for known in manifest.objects:
        try:
            data = objects.read(known.name)
        except Exception:
            if known.name.rpartition(".")[0] + MANIFEST in objects.sizes():
                raise
            return False
        assert (len(data), crc32c(data)) == (known.size_bytes, known.crc32c), known.name
    return True


def _keep(cluster: Cluster, seed: int, kills: int, samples: list[Sample], records: int) -> None:
    """Raw numbers of a long run."""
    if kills < 20:
        return
    _RESULTS.mkdir(parents=True, exist_ok=True)
    content = {
        "store": cluster.store_kind,
        "seed": seed,
        "kills": kills,
        "commit": commit(),
        "machine": machine_in_words(),
        "load": load_in_words(),
        "acknowledged_records": records,
        "samples": [asdict(sample) for sample in samples],
    }
    path = _RESULTS / f"kills-{cluster.store_kind}-{time.strftime('%Y-%m-%d')}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
