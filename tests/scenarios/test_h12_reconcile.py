"""`rlm reconcile` beside a service: what is of another cluster stays, remains go (H12)."""

import os
import shutil
from pathlib import Path

import pytest

from rlm.clock import new_uuid
from rsm_plugins.layout.manifest import Manifest, build_manifest
from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.faults import store_dir
from tests.scenarios.objects import MANIFEST, finished_segments, with_records

pytestmark = pytest.mark.integration
_LONG_AGO_S = 1_000_000_000


def _folder(cluster: Cluster, topic: str, store: Path | None = None) -> Path:
    root = store or store_dir(cluster)
    (found,) = root.glob(f"{cluster.sandbox.state.cluster_id}/{topic}-*/0")
    return found


def _copied(cluster: Cluster, topic: str) -> list[Row]:
    cluster.create_topic(topic)
    cluster.enable(topic)
    rows = cluster.fill(topic, mib=3)
    cluster.wait_trimmed(topic)
    cluster.wait_copied(topic)
    return rows


def _command(cluster: Cluster) -> tuple[str, ...]:
    return "reconcile", "--config", str(cluster.sandbox.layout.rlm_config(1))


def _aged(path: Path) -> Path:
    os.utime(path, (_LONG_AGO_S, _LONG_AGO_S))
    return path


def _of_another_cluster(folder: Path) -> list[Path]:
    """The first segment as another cluster has it: in its own folder, and below our name."""
    other = folder.parents[2] / "another-cluster" / folder.parent.name / folder.name
    shutil.copytree(folder, other)
    manifest = min(folder.glob("*.rsm-manifest"))
    read = Manifest.parse(manifest.read_bytes())
    segment_id = new_uuid()
    stray = folder / f"{read.start_offset:020}-{segment_id}.rsm-manifest"
    fields = {name: getattr(read, name) for name in read.__slots__}
    foreign = Manifest(**{**fields, "cluster_id": "another-cluster", "segment_id": segment_id})
    stray.write_bytes(build_manifest(foreign))
    (records,) = with_records(folder, manifest.stem)
    ours = [stray, Path(shutil.copy(records, stray.with_suffix(records.suffix)))]
    return [_aged(path) for path in (*ours, *other.iterdir())]


def test_h12_reconcile_deletes_nothing_of_another_cluster(one: Cluster) -> None:
    topic = fresh("reconciled")
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=3)
    one.wait_copied(topic)
    assert len(finished_segments(one, topic)) >= 2
    command = _command(one)
    one.rlm(*command, "--yes", check=False)  # of what other tests have left
    folder = _folder(one, topic)
    foreign = _of_another_cluster(folder)
    first = with_records(folder)[0]
    remains = folder / f"{0:020}-{new_uuid()}{first.suffix}"
    _aged(Path(shutil.copy(first, remains)))
    shown = one.rlm(*command, check=False)
    assert "another-cluster" in shown.stdout
    assert "nothing was written" in shown.stdout, shown.stderr
    assert remains.exists()
    done = one.rlm(*command, "--yes", check=False)
    assert "0 segments adopted, 1 registered" in done.stdout, done.stderr
    one.wait_for(lambda: not remains.exists(), "the remains deleted by cleanup")
    assert all(path.exists() for path in foreign)
    assert_same(one.read_all(topic), rows)
    for path in foreign[:2]:
        path.unlink()
    shutil.rmtree(folder.parents[2] / "another-cluster")


def test_h12_two_clusters_of_one_store_leave_each_other_alone(
    one: Cluster, sandbox_factory: SandboxFactory
) -> None:
    """Each is reconciled and cleaned beside real objects of the other, which are older than every
    grace and of a topic of the same name: below the prefix of its own that the store takes a second
    cluster with, and where copies of a bucket bring them, below the prefix of the first and below
    its very name.
    """
    shared = (f"store.rsm.config.root={store_dir(one)}", "store.rsm.config.prefix=second")
    with Cluster(sandbox_factory(overrides=shared)) as two:
        topic = fresh("shared")
        rows = {cluster: _copied(cluster, topic) for cluster in (one, two)}
        one.rlm(*_command(one), "--yes", check=False)  # of what other tests have left
        folders = {
            cluster: _folder(cluster, topic, root)
            for cluster, root in ((one, store_dir(one)), (two, store_dir(one) / "second"))
        }
        for cluster, other in ((one, two), (two, one)):
            theirs, named = folders[other], folders[cluster].parents[1]
            brought = [named.parent / Path(*theirs.parts[-3:]), named / Path(*theirs.parts[-2:])]
            for folder in brought:
                shutil.copytree(theirs, folder)
            before = {
                path: path.read_bytes() for where in (theirs, *brought) for path in _all(where)
            }
            said = cluster.rlm(*_command(cluster), "--yes", check=False)
            assert "0 segments adopted, 0 registered" in said.stdout, said.stderr
            assert said.stdout.count(other.sandbox.state.cluster_id) == len(_all(theirs, MANIFEST))
            cluster.wait_for_expiration_tasks()
            assert {path: path.read_bytes() for path in before} == before
            shutil.rmtree(brought[0].parents[1])
            shutil.rmtree(brought[1].parent)
        for cluster, expected in rows.items():
            assert_same(cluster.read_all(topic), expected)


def _all(folder: Path, kind: str = "") -> list[Path]:
    """Its files, which are old from now on."""
    return [_aged(path) for path in folder.glob(f"*{kind}")]
