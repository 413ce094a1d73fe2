"""Segments in blocks are read by the forty lines of docs/read-it-without-us.md."""

import ast
import subprocess
import sys
from pathlib import Path

from kip405.crc import crc32c
from kip405.segments import FileSlice, LogSegmentData
from rsm_plugins.blocks.index import build_index
from rsm_plugins.blocks.source import data_pieces, plan_of
from tests.docs.page import block, decode, offsets_printed
from tests.docs.test_read_without_us import fetch_by_cp
from tests.project.tree import ROOT
from tests.rlm.download.stored import copied
from tests.rsm_plugins.blocks.logs import LOCATOR

PROGRAM = ROOT / "docs" / "blocks_without_us.py"
BLOCK_BYTES = 600


def in_blocks(log: Path) -> tuple[bytes, bytes]:
    """Put both objects of the layout in the place of a fetched log and its indexes, whose bytes are
    returned.
    """
    content, indexes = log.read_bytes(), log.with_suffix(".indexes").read_bytes()
    data = LogSegmentData(
        log=FileSlice(path=str(log), position=0, size_bytes=len(content)),
        log_crc32c=crc32c(content),
        indexes=indexes,
        indexes_crc32c=crc32c(indexes),
    )
    plan = plan_of(data, BLOCK_BYTES)
    assert len(plan.blocks) > 2
    log.with_suffix(".blocks").write_bytes(b"".join(data_pieces(plan, data)))
    log.with_suffix(".blocks-index").write_bytes(build_index(plan, LOCATOR, data))
    log.unlink()
    log.with_suffix(".indexes").unlink()
    return content, indexes


def make_logs(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the program as the page says, by an interpreter that finds none of our packages."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM), "fetched"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_page_shows_the_file_and_it_is_forty_plain_lines() -> None:
    code = PROGRAM.read_text(encoding="utf-8")
    assert block("python", "def batches") == code
    assert sum(1 for line in code.splitlines() if line.strip()) <= 40
    nodes = list(ast.walk(ast.parse(code)))
    imported = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names


async def test_a_partition_of_both_layouts_is_decoded_in_order(tmp_path: Path) -> None:
    fetch_by_cp(await copied(tmp_path, 0, 100, 250, end=300), tmp_path)
    first, _ = sorted((tmp_path / "fetched").glob("*.log"))
    content, indexes = in_blocks(first)
    done = make_logs(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert first.read_bytes() == content
    assert first.with_suffix(".indexes").read_bytes() == indexes
    assert offsets_printed(decode(tmp_path)) == list(range(250))


async def test_objects_that_were_not_fetched_whole_are_noticed(tmp_path: Path) -> None:
    fetch_by_cp(await copied(tmp_path, 0, 100, end=150), tmp_path)
    (log,) = (tmp_path / "fetched").glob("*.log")
    in_blocks(log)
    blocks = log.with_suffix(".blocks")
    whole = blocks.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b"\x00" + whole[1:]):
        blocks.write_bytes(damaged)
        done = make_logs(tmp_path)
        assert done.returncode == 1
        assert "fetch it again" in done.stderr
