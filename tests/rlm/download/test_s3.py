"""A download from a bucket by manifests alone: the store is opened in the command's own process."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.rlm.download.stored import Work, copied
from tests.store_servers import S3Server


@pytest.mark.integration
async def test_a_bucket_gives_what_the_copier_put_there(
    s3_server: S3Server, tmp_path: Path
) -> None:
    rig = await copied(tmp_path, 0, 100, 250, end=300)
    wanted = Work(rig, tmp_path / "wanted")
    await wanted.run()
    bucket = s3_server.bucket()
    for name, data in rig.store.objects.items():
        path = s3_server.folder / "buckets" / bucket / "archive" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    config = tmp_path / "plugin.yaml"
    rows = {**s3_server.settings(bucket), "rsm.config.prefix": "archive"}
    config.write_text(yaml.safe_dump({"listen": "127.0.0.1:0", "plugin": "s3", **rows}))
    done = await asyncio.to_thread(
        subprocess.run,
        [
            *(sys.executable, "-m", "rlm.cli.main", "download", TOPIC),
            *("--dir", str(tmp_path / "out"), "--cluster-id", CLUSTER_ID),
            *("--plugin-config", str(config)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 segments" in done.stderr
    folder = tmp_path / "out" / f"{TOPIC}-0"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == wanted.files()
