"""Folders of Sparks that were killed are removed by the next one, and no others."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlm_spark.local_spark import SessionFolder

_CODE = """
import sys
from pathlib import Path
from rlm_spark.local_spark import SessionFolder
made = SessionFolder.made(Path(sys.argv[1]))
(made.path / "file").write_text("x")
print(made.path, flush=True)
sys.stdin.read()
"""


@contextmanager
def _other_process(parent: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """One that has a folder, and that it."""
    command = [sys.executable, "-c", _CODE, str(parent)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    with _other_process(tmp_path) as (process, folder):
        first = SessionFolder.made(tmp_path)
        assert (folder / "file").read_text() == "x", "it lives"
        process.kill()
        process.wait(30)
    assert folder.exists()
    second = SessionFolder.made(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path])
    first.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    parent, elsewhere = tmp_path / "tmp", tmp_path / "elsewhere"
    for folder in (parent, elsewhere, parent / "kafka-rlm-spark-other"):
        folder.mkdir()
    (elsewhere / "file").write_text("x")
    (parent / "kafka-rlm-spark-session-link").symlink_to(elsewhere)
    (parent / "kafka-rlm-spark-session-file").write_text("x")
    before = sorted(parent.iterdir())
    made = SessionFolder.made(parent)
    assert made.path.stat().st_mode & 0o077 == 0
    made.remove()
    assert sorted(parent.iterdir()) == before
    assert os.listdir(elsewhere) == ["file"]


def test_processes_that_start_together_keep_their_folders(tmp_path: Path) -> None:
    """Each sweeps while others are between making and locking."""
    code = (
        "import sys; from pathlib import Path\n"
        "from rlm_spark.local_spark import SessionFolder\n"
        "for _ in range(50):\n"
        "    made = SessionFolder.made(Path(sys.argv[1]))\n"
        "    (made.path / 'file').write_text('x')\n"
        "    assert (made.path / 'file').exists()\n"
        "    made.remove()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    together = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in together:
        _, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
    assert list(tmp_path.iterdir()) == []
