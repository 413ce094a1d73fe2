"""The examples of docs/spark.md, cut out of it and run unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.tree import ROOT
from tests.spark.conftest import Twins
from tests.spark.lab import Lab

pytestmark = pytest.mark.integration

PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^<!-- test: (\w+) -->\n```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _blocks(language: str) -> list[str]:
    return [text for _, found, text in _BLOCK.findall(PAGE) if found == language]


def test_the_programs_of_the_page_run(
    lab: Lab, twins: Twins, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {
        "spark": lab.spark,
        "endpoints": lab.endpoint,
        "topic": twins.tiered,
        "folder": str(tmp_path),
    }
    programs = _blocks("python")
    assert len(programs) == len(re.findall(r"^```python$", PAGE, re.MULTILINE)) == 5
    for program in programs:
        exec(compile(program, "docs/spark.md", "exec"), dict(names))
    count, committed = len(twins.rows), len(twins.committed_rows)
    first, again, columns, exported = capsys.readouterr().out.splitlines()
    assert (first, again) == (str(count), str(count))
    assert columns == "['value', 'timestamp']"
    assert exported.startswith(f"{committed} ")
    assert lab.spark.read.parquet(str(tmp_path / "out")).count() == count
    frame = lab.spark.read.parquet(str(tmp_path / "exported"))
    assert frame.count() == committed
    assert {"topic", "date", "value"} <= set(frame.columns)


@pytest.mark.long
def test_the_commands_of_the_page_run(lab: Lab, twins: Twins, tmp_path: Path) -> None:
    for command in _blocks("sh"):
        here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environ = {"RLM_SANDBOX": str(lab.cluster.sandbox.json["dir"]), "TOPIC": twins.tiered}
        done = subprocess.run(
            ["sh", "-eu", "-c", command],
            cwd=tmp_path,
            env={**os.environ, **environ, "PATH": here},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert twins.tiered in done.stdout or "rows in" in done.stdout
