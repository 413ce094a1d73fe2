"""docs/read-it-without-us.md does what it says: its commands and its sixty lines are run here."""

import ast
import os
import sys
from pathlib import Path

import pytest
from hdfs_native import Client

from rsm_plugins.layout.keys import entropy_digits
from tests.builders.rig import Rig
from tests.docs.page import PAGE, SCRIPT, block, decode, offsets_printed, run_shell
from tests.kip405.batch_builder import batch
from tests.rlm.download.stored import copied, put
from tests.store_servers import S3Server
from tests.store_servers_hdfs import HdfsServer

MAX_LINE = 120


def write_tree(rig: Rig, root: Path) -> str:
    """The rig's objects as files; the name of the partition's folder."""
    for name, data in rig.store.objects.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder,) = {name.rpartition("/")[0] for name in rig.store.objects}
    return folder


def fetch_by_cp(rig: Rig, tmp_path: Path) -> None:
    folder = write_tree(rig, tmp_path / "store")
    run_shell(block("sh", "cp -R"), tmp_path, STORE=str(tmp_path / "store"), PARTITION=folder)


def test_the_page_shows_the_file_and_it_is_sixty_plain_lines() -> None:
    code = SCRIPT.read_text(encoding="utf-8")
    assert block("python", "def partition") == code
    assert sum(1 for line in code.splitlines() if line.strip()) <= 60
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(code))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_lines_are_short() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > MAX_LINE] == []


def test_the_entropy_digits_of_the_page_are_ours() -> None:
    found: dict[str, object] = {}
    exec(block("python", "def entropy_digits"), found)
    page_digits = found["entropy_digits"]
    assert callable(page_digits)
    for number in range(20):
        for bits in (0, 1, 5, 32):
            ours = entropy_digits("kafkaCluster1", "topicA", number, bits)
            assert page_digits("kafkaCluster1", "topicA", number, bits) == ours
    assert page_digits("kafkaCluster1", "topicA", 0, 5) == "01011"


async def test_a_partition_fetched_by_cp_is_decoded_in_order(tmp_path: Path) -> None:
    fetch_by_cp(await copied(tmp_path, 0, 100, 250, end=300), tmp_path)
    done = decode(tmp_path)
    assert offsets_printed(done) == list(range(250))
    first, second = done.stdout.splitlines()[:2]
    assert first == "0\t1000\tb'k0'\tb'value'\t[b'h', b'0']"
    assert second.startswith("1\t1001\tb'k1'")


async def test_it_begins_at_the_remote_log_start(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, end=150)
    name = rig.names(".rsm-manifest")[0]
    old, new = b'"remote_log_start_offset":0', b'"remote_log_start_offset":33'
    assert old in rig.store.objects[name]
    rig.store.objects[name] = rig.store.objects[name].replace(old, new)
    fetch_by_cp(rig, tmp_path)
    assert offsets_printed(decode(tmp_path)) == list(range(33, 100))


def test_h04_overlapping_and_diverging_copies_come_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig, 1, log(0, 100, epoch=5), {5: 0})
    put(rig, 2, log(30, 60, epoch=5) + log(60, 150, epoch=6), {5: 30, 6: 60})
    put(rig, 3, log(0, 100, epoch=5), {5: 0})
    fetch_by_cp(rig, tmp_path)
    done = decode(tmp_path)
    assert offsets_printed(done) == list(range(150))
    epochs = [line.split("\t")[3] for line in done.stdout.splitlines()]
    assert epochs == ["b'e5'"] * 60 + ["b'e6'"] * 90


def log(first: int, end: int, *, epoch: int, compression: int = 0) -> bytes:
    return b"".join(
        batch(base, 10, epoch=epoch, value=b"e%d" % epoch, compression=compression)
        for base in range(first, end, 10)
    )


def test_gzip_is_decoded_and_other_codecs_are_named(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig, 1, log(0, 20, epoch=0, compression=1), {0: 0})
    put(rig, 2, log(20, 40, epoch=0, compression=4), {0: 20})
    fetch_by_cp(rig, tmp_path)
    done = decode(tmp_path)
    assert done.returncode == 1
    assert "codec 4" in done.stderr
    assert "pip install cramjam" in done.stderr


def test_gzip_alone_needs_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig, 1, log(0, 20, epoch=0, compression=1), {0: 0})
    fetch_by_cp(rig, tmp_path)
    assert offsets_printed(decode(tmp_path)) == list(range(20))


async def test_a_log_that_was_not_fetched_whole_is_noticed(tmp_path: Path) -> None:
    fetch_by_cp(await copied(tmp_path, 0, 100, end=150), tmp_path)
    (path,) = (tmp_path / "fetched").glob("*.log")
    path.write_bytes(path.read_bytes()[:-1])
    done = decode(tmp_path)
    assert done.returncode == 1
    assert "fetch it again" in done.stderr


def test_an_empty_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "fetched").mkdir()
    done = decode(tmp_path)
    assert (done.returncode, done.stderr.strip()) == (1, "fetched holds no manifest")


@pytest.mark.integration
async def test_a_partition_fetched_from_s3_by_curl_is_decoded(
    s3_server: S3Server, tmp_path: Path
) -> None:
    rig = await copied(tmp_path, 0, 100, 250, end=300)
    bucket = s3_server.bucket()
    objects = s3_server.folder / "buckets" / bucket
    folder = write_tree(rig, objects)
    for name in sorted(os.listdir(objects / folder)):
        run_shell(
            block("sh", "aws-sigv4"),
            tmp_path,
            OBJECT=name,
            PARTITION=folder,
            BUCKET=bucket,
            S3_URL=s3_server.endpoint,
            AWS_REGION=s3_server.region,
            AWS_ACCESS_KEY_ID=s3_server.access_key,
            AWS_SECRET_ACCESS_KEY=s3_server.secret_key,
            NO_PROXY="*",
        )
    assert offsets_printed(decode(tmp_path)) == list(range(250))


@pytest.mark.integration
async def test_a_partition_fetched_from_hdfs_by_curl_is_decoded(
    hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    rig = await copied(tmp_path, 0, 100, 250, end=300)
    folder = write_tree(rig, tmp_path / "store")
    client = Client(hdfs_server.url)
    client.mkdirs(f"/outside/{folder}", create_parent=True)
    for name, data in rig.store.objects.items():
        with client.create(f"/outside/{name}") as file:
            file.write(data)
        run_shell(
            block("sh", "webhdfs"),
            tmp_path,
            OBJECT=Path(name).name,
            PARTITION=folder,
            HDFS_ROOT="/outside",
            WEBHDFS_URL=f"http://127.0.0.1:{hdfs_server.ports.namenodes[0].http}",
            NO_PROXY="*",
        )
    assert offsets_printed(decode(tmp_path)) == list(range(250))
