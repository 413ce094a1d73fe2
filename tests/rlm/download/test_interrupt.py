"""Ctrl-C in the middle leaves a directory that the same command completes, and no trace else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.builders.log_dir import TOPIC
from tests.builders.rig import Rig
from tests.kip405.batch_builder import batch
from tests.rlm.download.stored import put

SEGMENTS = 60


def store_tree(tmp_path: Path) -> Path:
    """A local store with segments of some 2 MB."""
    rig = Rig(tmp_path)
    for number in range(SEGMENTS):
        put(rig, number + 1, batch(number * 10, 10, value=os.urandom(200_000)), {0: number * 10})
    root = tmp_path / "store"
    for name, data in rig.store.objects.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    identity = (
        '{"v":1,"kind":"store","store_id":"%s","cluster_id":"cluster-of-tests","created_ms":0}'
    )
    (root / "rlm-store.json").write_text(identity % ("A" * 22))
    return root


def test_ctrl_c_and_again(tmp_path: Path) -> None:
    root = store_tree(tmp_path)
    config = tmp_path / "plugin.yaml"
    config.write_text(
        yaml.safe_dump({"listen": "127.0.0.1:0", "plugin": "local", "rsm.config.root": str(root)})
    )
    out = tmp_path / "out"
    command = [
        *(sys.executable, "-m", "rlm.cli.main", "download", TOPIC, "--dir", str(out)),
        *("--plugin-config", str(config)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while (
            process.poll() is None and not list(out.rglob("*.log")) and time.monotonic() < deadline
        ):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, said) == (130, ""), errors
    assert "Traceback" not in errors
    before = len(list(out.rglob("*.log")))
    assert 0 < before < SEGMENTS
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    assert f"{SEGMENTS} of {SEGMENTS} segments" in again.stderr
    assert "of it were there" in again.stderr
    names = {path.name for path in (out / f"{TOPIC}-0").iterdir()}
    assert len([name for name in names if name.endswith(".log")]) == SEGMENTS
    assert not [name for name in names if name.endswith((".part", ".tmp"))]
