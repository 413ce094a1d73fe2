"""An import of a bucket into another one, and the way back out, on a real S3 server."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.builders.log_dir import CLUSTER_ID
from tests.builders.pinterest import BITS, CLUSTER, PREFIX, TOPIC, TheirBucket, upload_all
from tests.kip405.batch_builder import batch, control_batch, log_of
from tests.store_servers import S3Server

LOGS = (
    log_of(0, [40, 60]),
    batch(100, 10, transactional=True, producer_id=7) + batch(110, 10),
    control_batch(120, 0, producer_id=7) + batch(121, 79),
)


async def rlm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "rlm.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.integration
@pytest.mark.long
async def test_a_bucket_of_theirs_is_imported_into_ours_and_read_back(
    s3_server: S3Server, tmp_path: Path
) -> None:
    ours, theirs = s3_server.bucket(), s3_server.bucket()
    bucket = TheirBucket(s3_server.folder / "buckets" / theirs)
    upload_all(bucket, *LOGS)
    before = bucket.content()
    config = tmp_path / "plugin.yaml"
    rows = {
        **s3_server.settings(ours),
        "rsm.config.prefix": "archive",
        "rsm.config.pinterest.bucket": theirs,
        "rsm.config.pinterest.prefix": PREFIX,
        "rsm.config.pinterest.cluster": CLUSTER,
        "rsm.config.pinterest.entropy.bits": BITS,
    }
    config.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", "plugin": "s3", **rows}))
    options = ("import", "pinterest", "--plugin-config", str(config), "--cluster-id", CLUSTER_ID)
    done = await rlm(*options)
    assert done.returncode == 0, done.stderr
    assert f"{TOPIC}-0: 3 segments imported" in done.stdout
    again = await rlm(*options)
    assert (again.returncode, f"{TOPIC}-0: nothing to do" in again.stdout) == (0, True)
    out = tmp_path / "out"
    read = await rlm("download", TOPIC, "--dir", str(out), "--plugin-config", str(config))
    assert read.returncode == 0, read.stderr
    for base, log in zip((0, 100, 120), LOGS, strict=True):
        assert (out / f"{TOPIC}-0" / f"{base:020d}.log").read_bytes() == log
    assert bucket.content() == before
