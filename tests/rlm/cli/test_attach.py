"""`rlm attach` as a whole: a local store, no Kafka, real commands that ask it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kip405.contracts import StoreIdentity
from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.config.loader import attached_from_mapping
from rlm.service.settings_backup import read_settings_backup
from rlm_sandbox.ports import PortReservation
from rlmm.settings_codec import encode_settings_record
from rlmm.settings_records import ClusterRecord, Stamp, StartRecord
from rsm_plugins.layout.keys import IDENTITY_NAME
from rsm_plugins.layout.manifest import encode_identity
from tests.builders.attached_process import attached_reader, refused, wait_for
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID

SETTINGS = {
    "state.dir": "/nowhere",
    "grpc.listen": "127.0.0.1:1",
    "http.listen": "127.0.0.1:2",
    "plugin": "local",
    "rsm.config.root": "/nowhere",
}
TLS = {"proxy.tls.cert.file": "/c", "proxy.tls.key.file": "/k"}
REQUIRED = {
    "proxy.listen": "10.0.0.1:9092",
    "proxy.tls.client.auth": "required",
    "proxy.tls.client.ca.file": "/a",
}
PRINCIPALS = {"api.principals.file": "/p", "api.token.file": "/t"}
STAMP = Stamp(node_id=1, leader_epoch=0, writer=Uuid(b"\x01" * 16), time_ms=0)


async def stored(folder: Path) -> Path:
    """A local store with segments [0, 100), [100, 200), [200, 300) of orders-0."""
    rig = Rig(folder)
    rig.write_log(0, 100, 200, 300, end=350)
    await rig.copy.run(rig.led)
    store = folder / "store"
    for name, content in rig.store.objects.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(content)
    identity = StoreIdentity(store_id=STORE_ID, cluster_id=CLUSTER_ID, created_ms=0)
    (store / IDENTITY_NAME).write_bytes(encode_identity(identity))
    return store


def content(store: Path) -> dict[str, str]:
    files = (one for one in store.rglob("*") if one.is_file())
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


async def test_a_store_is_served_without_kafka_and_stays_as_it_is(tmp_path: Path) -> None:
    store = await stored(tmp_path)
    before = content(store)
    with attached_reader(tmp_path, store, "--refresh", "1s") as reader:
        topic, remote = PARTITION.topic, ("--remote-only", "-n", "0", "--json")
        done = reader.rlm("fetch", topic, "-p", "0", "-o", "earliest", *remote)
        assert done.returncode == 0, done.stderr
        assert [json.loads(one)["offset"] for one in done.stdout.splitlines()] == list(range(300))
        segments = json.loads(reader.rlm("segments", topic, "--json").stdout)["segments"]
        assert [one["start_offset"] for one in segments] == [0, 100, 200]
        both = reader.rlm("fetch", topic, "-p", "0", "-o", "0")
        assert (both.returncode, "an attached reader" in both.stderr) == (1, True)
        folder = tmp_path / "downloaded"
        done = reader.rlm("download", topic, "--dir", str(folder), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["partitions"][0]["next_offset"] == 300
        status = reader.rlm("status", "--json")
        assert status.returncode == 0, status.stderr
        (row,) = json.loads(status.stdout)["partitions"]
        assert (row["remote_log_start_offset"], row["remote_next_offset"]) == (0, 300)
        assert f"{topic}-0" in reader.rlm("status", topic).stdout
        refusal = reader.rlm("freeze", "--why", "tests")
        assert (refusal.returncode, "no cluster" in refusal.stderr) == (2, True), refusal.stderr
        health = reader.health()
        assert (health["ready"], health["problems"]) == (True, [])
        events = [json.loads(one) for one in reader.log.read_text().splitlines()]
        (found,) = [one for one in events if one["event"] == "attached"]
        assert (found["topics"], found["partitions"], found["segments"]) == (1, 1, 3)
    assert content(store) == before


async def test_chunks_of_segments_that_are_gone_leave_the_cache_on_disk(tmp_path: Path) -> None:
    store = await stored(tmp_path)
    cache = {"fetch.chunk.cache.path": str(tmp_path / "cache")}
    with attached_reader(tmp_path, store, settings=cache) as reader:
        remote = ("--remote-only", "-n", "0", "--json")
        done = reader.rlm("fetch", PARTITION.topic, "-p", "0", "-o", "earliest", *remote)
        assert done.returncode == 0, done.stderr
        wait_for(lambda: len(list((tmp_path / "cache").rglob("*.chunk"))) >= 3)
    for one in [one for one in store.rglob("*") if one.name.startswith(f"{0:020d}-")]:
        one.unlink()
    with attached_reader(tmp_path, store, settings=cache) as reader:
        wait_for(lambda: '"ended_chunks_dropped"' in reader.log.read_text())


async def test_what_is_not_that_clusters_store_is_refused_with_one_line(tmp_path: Path) -> None:
    store = await stored(tmp_path)
    ports = PortReservation()
    listen = {f"{name}.listen": f"127.0.0.1:{ports.take()}" for name in ("grpc", "http")}
    ports.lend_all()
    own = {"state.dir": str(tmp_path / "state"), "rsm.config.root": str(store)}
    settings = {**SETTINGS, **own, **listen}
    line = refused(tmp_path, {**settings, "cluster.id": "another"})
    assert f"belongs to cluster {CLUSTER_ID}, cluster.id is another" in line
    (store / IDENTITY_NAME).unlink()
    assert "has no rlm-store.json" in refused(tmp_path, settings)
    ports.release_all()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kafka.bootstrap.servers": "a:1"}, "an attached reader asks no broker; take it out"),
        ({"node.id": 1}, "a reader has no broker and copies nothing; take it out"),
        ({"proxy.listen": "10.0.0.1:9092"}, "is not loopback, and everybody could read there"),
        ({"proxy.listen": "0.0.0.0:9092"}, "proxy.advertised: must be an address to connect to"),
        ({"proxy.listen": "127.0.0.1:1", "api.token.file": "/t"}, "api.token.file would be passed"),
        ({"proxy.listen": "10.0.0.1:9092", **TLS}, "is not loopback, and everybody could read"),
        (TLS, "proxy.tls.cert.file: goes with proxy.listen"),
        ({**PRINCIPALS, **TLS, **REQUIRED}, "api.principals.file would be passed by"),
        ({"proxy.listen": "127.0.0.1:1", "proxy.tls.ciphers": "x"}, "without proxy.tls.cert.file"),
        ({"api.authorization": "kafka", "api.token.file": "/t"}, "no brokers to ask for ACLs"),
    ],
)
def test_settings_of_kafka_are_refused(more: dict[str, Any], words: str) -> None:
    assert attached_from_mapping(SETTINGS, {}).cluster_id == ""
    with pytest.raises(Invalid, match=words):
        attached_from_mapping({**SETTINGS, **more}, {})


def test_clients_with_certificates_may_come_from_anywhere() -> None:
    given = {**SETTINGS, **TLS, **REQUIRED, "api.token.file": "/t"}
    assert attached_from_mapping(given, {}).proxy_tls_client_auth == "required"


def test_a_backup_is_lines_of_the_console_consumer(tmp_path: Path) -> None:
    def line(record: Any) -> bytes:
        key, value = encode_settings_record(record, STAMP)
        return key + b"|" + value + b"\n"

    cluster = ClusterRecord(
        cluster_id=CLUSTER_ID, ledger_topic_id=STORE_ID, settings_topic_id=STORE_ID
    )
    starts = [
        StartRecord(partition=PARTITION.key, remote_log_start_offset=at, cause="retention")
        for at in (5, 7)
    ]
    path = tmp_path / "rlm-settings.txt"
    path.write_bytes(b"".join(map(line, (cluster, *starts))) + b"service/1|null\n")
    view = read_settings_backup(path)
    assert (view.cluster, view.remote_log_start(PARTITION.key)) == (cluster, 7)
    path.write_bytes(line(cluster) + b"start/x|{}\n")
    with pytest.raises(Invalid, match="settings record"):
        read_settings_backup(path)
    path.write_bytes(b"Processed a total of 3 messages\n")
    with pytest.raises(Invalid, match=r"line 1: it is not key\|value"):
        read_settings_backup(path)
    with pytest.raises(Invalid, match="cannot be read"):
        read_settings_backup(tmp_path / "none")
