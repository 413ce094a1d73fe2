"""Pulsar's own classes open our blocks, and say what the second reader says.

`pulsar/OpenBlocks.java` gives both objects to `OffloadIndexBlockBuilder`, `DataBlockHeaderImpl` and
`BlobStoreBackedReadHandleImpl` of Pulsar's jclouds offloader, over a store that has nothing else.
The read handle counts ids from the first one of a block on, so it gives out what lies before the
first gap of each block: all of a log whose batches have one record each.
"""

import itertools
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.java_classes import compiled, java_compiler
from rlm_sandbox.kafka_dist import cache_dir, java_binary, java_environment
from rlm_sandbox.maven import cached_jars
from rlm_sandbox.spec import SandboxError
from tests.formats.pip17_reader import Block, Entry, Index, read_blocks, read_index
from tests.rsm_plugins.blocks.logs import log_of, stored

pytestmark = [pytest.mark.integration, pytest.mark.long]

FORMATS = Path(__file__).parent
_PULSAR, _BOOKKEEPER, _NETTY, _JCLOUDS = "4.0.8", "4.17.2", "4.1.128.Final", "2.6.0"
_JARS = (
    f"org.apache.pulsar:tiered-storage-jcloud:{_PULSAR}",
    f"org.apache.pulsar:managed-ledger:{_PULSAR}",
    f"org.apache.pulsar:pulsar-common:{_PULSAR}",
    f"org.apache.bookkeeper:bookkeeper-server:{_BOOKKEEPER}",
    f"org.apache.bookkeeper:bookkeeper-proto:{_BOOKKEEPER}",
    f"org.apache.bookkeeper:bookkeeper-common-allocator:{_BOOKKEEPER}",
    f"org.apache.jclouds:jclouds-blobstore:{_JCLOUDS}",
    f"org.apache.jclouds:jclouds-core:{_JCLOUDS}",
    f"io.netty:netty-buffer:{_NETTY}",
    f"io.netty:netty-common:{_NETTY}",
    "com.google.guava:guava:32.1.2-jre",
    "com.google.protobuf:protobuf-java:3.25.5",
    "org.slf4j:slf4j-api:2.0.13",
)
"""What these classes load, in the versions of Pulsar's own pom; all they name would be 130 MiB."""
_JARS_MIB = 24
_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_RUN_LIMIT_S = 300
_GAP = "BKUnexpectedConditionException"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Both objects as the second reader has them, and Pulsar's answers; it was asked for `ranges`
    of ids, FIRST-LAST.
    """

    index: Index
    blocks: tuple[Block, ...]
    ranges: Sequence[str]
    said: dict[str, Any]

    @property
    def entries(self) -> list[Entry]:
        return [entry for block in self.blocks for entry in block.entries]

    def read(self) -> dict[str, str]:
        """By range: the bytes in hexadecimal, or the name of the error."""
        return dict(zip(self.ranges, self.said["read"], strict=True))


def _command() -> list[str]:
    name = f"pulsar-{_PULSAR}"
    try:
        jars = cached_jars(
            name,
            _JARS,
            cache_dir(),
            repository=os.environ.get("RLM_MAVEN_REPO"),
            size_mib=_JARS_MIB,
            progress=lambda _: None,
            alone=True,
        )
    except SandboxError as error:
        pytest.skip(f"jars cannot be had for {name}: {error}")
    path = os.pathsep.join(map(str, jars))
    classes = compiled(java_compiler(), FORMATS / "pulsar", path, f"open-blocks-{_PULSAR}")
    return [str(java_binary()), *_OPTIONS, "-cp", f"{path}{os.pathsep}{classes}", "OpenBlocks"]


def _opened(index_path: Path, data_path: Path, ranges: Sequence[str]) -> Opened:
    done = subprocess.run(
        [*_command(), str(index_path), str(data_path), *ranges],
        capture_output=True,
        text=True,
        env=java_environment(),
        timeout=_RUN_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    index = read_index(index_path.read_bytes())
    blocks = read_blocks(data_path.read_bytes(), index)
    return Opened(index=index, blocks=blocks, ranges=ranges, said=json.loads(done.stdout))


def _check(found: Opened, last_id: int) -> None:
    """What index, metadata and headers say; LedgerMetadataFormat's parser takes our metadata."""
    said, index, blocks = found.said, found.index, found.blocks
    assert said["blocks"] == len(index.blocks) == len(blocks)
    assert (said["data_length"], said["header_length"]) == (index.data_length, index.header_length)
    log_bytes = sum(len(one.data) for one in found.entries)
    assert said["ledger"] == [1, 1, log_bytes, last_id]  # ensemble, quorum, bytes, last entry
    assert (said["state"], said["closed"]) == ("CLOSED", True)
    assert (said["length"], said["last"]) == (log_bytes, last_id)
    block_of = {entry.id: at for at, block in enumerate(blocks) for entry in block.entries}
    for (asked, *mapping), header in zip(said["entries"], said["headers"], strict=True):
        at = block_of[asked]
        own, block = index.blocks[at], blocks[at]
        assert mapping == [own.first_entry_id, own.part, own.position, own.position + 128]
        assert header == [128, block.length, block.first_entry_id]


def test_the_golden_files() -> None:
    firsts, others = (1_000, 1_006, 1_012), (1_003, 1_009)
    ranges = [f"{one}-{one}" for one in sorted(firsts + others)] + ["1006-1009", "1012-1013"]
    found = _opened(FORMATS / "blocks-index.blocks-index", FORMATS / "blocks-data.blocks", ranges)
    assert [entry.id for entry in found.entries] == sorted(firsts + others)
    _check(found, 1_012)
    data = {entry.id: entry.data.hex() for entry in found.entries}
    assert found.read() == {
        **{f"{one}-{one}": data[one] for one in firsts},
        **{f"{one}-{one}": _GAP for one in others},
        "1006-1009": _GAP,
        "1012-1013": "BKIncorrectParameterException",  # there is nothing after 1012
    }
    assert found.said["as_broker"].startswith("Invalid object version")


def test_batches_of_one_record_are_read_whole(tmp_path: Path) -> None:
    sizes = [200, 300, 150, 400, 90, 700, 61, 884, 500, 13 + 48, 333]
    made = stored(log_of(sizes, step=1), 1_024, tmp_path / "log")
    index_path, data_path = tmp_path / "index", tmp_path / "data"
    index_path.write_bytes(made.index_bytes)
    data_path.write_bytes(made.data)
    ids = range(100, 100 + len(sizes))
    pairs = [f"{one}-{other}" for one, other in itertools.combinations_with_replacement(ids, 2)]
    found = _opened(index_path, data_path, pairs[::-1])
    assert [entry.id for entry in found.entries] == list(ids)
    assert len(found.blocks) > 3 and found.said["requests"] > len(pairs)
    _check(found, ids[-1])
    data = {entry.id: entry.data.hex() for entry in found.entries}
    for pair, read in found.read().items():
        first, last = map(int, pair.split("-"))
        assert read == "".join(data[one] for one in range(first, last + 1)), pair
