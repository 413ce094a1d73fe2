"""memory.max.bytes: how it is divided, what is refused, and how much there is."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kip405.errors import Invalid
from rlm.config.loader import from_mapping, reader_from_mapping
from rlm.config.machine import usable_memory_bytes, usable_processors, worker_count
from rlm.config.memory import (
    CHUNKS,
    COPIES,
    COPY_BYTES,
    LEDGER,
    PROCESS_BYTES,
    PROXY,
    READER_PARTS,
    SERVICE_PARTS,
    WORKER_BYTES,
    Memory,
    service_parts,
)
from rlm.service.lifetime import warn_of_copy_slots, warn_of_memory
from tests.builders.service import broker_config

MIB = 1 << 20
GIB = 1 << 30
POOL = "remote.log.manager.copier.thread.pool.size"


def memory(max_mib: int | None = None, *, limit_mib: int = 24_576, workers: int = 0) -> Memory:
    whole = None if max_mib is None else max_mib * MIB
    return Memory(
        parts=SERVICE_PARTS, max_bytes=whole, limit_bytes=limit_mib * MIB, workers=workers
    )


def test_a_large_machine_gives_every_part_its_usual_size() -> None:
    assert memory().divided({}) == {part.name: part.usual_bytes for part in SERVICE_PARTS}
    assert memory().whole_bytes({}) == 12 * GIB


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("mib", [*range(900, 1_400, 50), 4_096, 65_536])
def test_what_is_set_is_divided_whole(mib: int, workers: int) -> None:
    found = memory(mib, workers=workers).divided({})
    fixed = PROCESS_BYTES + workers * WORKER_BYTES
    beside = found[CHUNKS.name] // 4 if workers else 0
    assert mib * MIB - 8 <= fixed + sum(found.values()) + beside <= mib * MIB
    assert found[PROXY.name] == pytest.approx(2 * found[COPIES.name], abs=2)
    assert all(found[part.name] >= part.least_bytes for part in SERVICE_PARTS)


@pytest.mark.parametrize("limit_mib", range(100, 4_000, 100))
def test_without_a_setting_the_parts_fit_into_half_of_the_limit(limit_mib: int) -> None:
    one = memory(limit_mib=limit_mib)
    found = one.divided({})
    assert one.fixed_bytes + sum(found.values()) <= one.whole_bytes({})
    assert one.whole_bytes({}) == max(limit_mib * MIB // 2, 264 * MIB), (
        "a small machine is no refusal"
    )
    assert all(part.least_bytes <= found[part.name] <= part.usual_bytes for part in SERVICE_PARTS)


def test_what_is_set_stays_and_the_others_share_the_rest() -> None:
    found = memory(1_024).divided({CHUNKS.name: 500 * MIB, LEDGER.name: 32 * MIB})
    assert (found[CHUNKS.name], found[LEDGER.name]) == (500 * MIB, 32 * MIB)
    assert (found[PROXY.name], found[COPIES.name]) == (200 * MIB, 100 * MIB)


def test_a_part_has_what_it_needs_at_least() -> None:
    found = memory(280).divided({})
    assert found[COPIES.name] == COPY_BYTES
    assert sum(found.values()) <= (280 - 192) * MIB


def test_parts_beyond_the_whole_are_refused_with_the_numbers() -> None:
    with pytest.raises(Invalid) as refused:
        memory(512).divided({CHUNKS.name: 300 * MIB})
    assert str(refused.value) == (
        "memory.max.bytes: is 536870912, and its parts are 574619648: the service itself "
        "201326592, fetch.chunk.cache.bytes 314572800, proxy.memory.max.bytes at least 16777216, "
        "copy.memory.max.bytes at least 25165824, ledger.memory.bytes at least 16777216; set it to "
        "574619648 or more, or lower a part"
    )
    sizes = {CHUNKS.name: 300 * MIB, PROXY.name: 16 * MIB, COPIES.name: 24 * MIB}
    assert memory(548).divided(sizes)[LEDGER.name] == 16 * MIB, "what it says is enough"
    with pytest.raises(Invalid, match="records of the remote tier in proxy workers 78643200"):
        memory(512, workers=1).divided({CHUNKS.name: 300 * MIB})


@pytest.mark.parametrize("limit_mib", [256, 2_048])
def test_without_a_whole_no_parts_are_refused(limit_mib: int) -> None:
    """As they were set before there was a whole."""
    one = memory(limit_mib=limit_mib, workers=4)
    given = {CHUNKS.name: 256 * MIB, PROXY.name: 512 * MIB}
    found = one.divided(given)
    assert given.items() <= found.items()
    needed = (192 + 4 * 128 + 256 + 256 // 4 + 512 + 24 + 16) * MIB
    assert one.whole_bytes(given) == max(needed, limit_mib * MIB // 2) == needed
    assert (found[COPIES.name], found[LEDGER.name]) == (COPIES.least_bytes, LEDGER.least_bytes)


def test_without_a_whole_a_large_part_leaves_the_others_their_usual_sizes() -> None:
    one, given = memory(limit_mib=64 * 1024), {CHUNKS.name: 32 * GIB}
    usual = {part.name: part.usual_bytes for part in SERVICE_PARTS}
    assert one.divided(given) == {**usual, **given}
    crowded = memory(limit_mib=4_096).divided({CHUNKS.name: 2_560 * MIB})
    assert crowded[PROXY.name] < PROXY.usual_bytes, "three quarters of the limit, not more"


def test_automatic_workers_are_counted_as_they_are_started(tmp_path: Path) -> None:
    """The least memory with which each number of them starts."""
    of_auto = worker_count("auto", usable_processors())
    least = (264 + of_auto * 128 + 4) * MIB
    given = {"proxy.workers": "auto", "memory.max.bytes": least}
    assert broker_config(tmp_path, given).copy_slots == 1
    with pytest.raises(Invalid, match=r"^memory.max.bytes: is "):
        broker_config(tmp_path, {**given, "memory.max.bytes": least - 1})


def test_the_configuration_has_the_parts(tmp_path: Path) -> None:
    config = broker_config(tmp_path, {"memory.max.bytes": 792 * MIB})
    assert config.memory_max_bytes == 792 * MIB
    assert (config.fetch_chunk_cache_bytes, config.proxy_memory_max_bytes) == (200 * MIB,) * 2
    assert (config.copy_memory_max_bytes, config.ledger_memory_bytes) == (100 * MIB,) * 2
    assert config.copy_slots == 4
    assert config.kept_memory_bytes == 99 * MIB
    with pytest.raises(Invalid, match=r"^memory.max.bytes: is 536870912, and its parts are "):
        broker_config(tmp_path, {"memory.max.bytes": 512 * MIB, "proxy.memory.max.bytes": 1 * GIB})
    larger = broker_config(tmp_path, {"proxy.memory.max.bytes": 1 << 50})
    assert larger.proxy_memory_max_bytes == 1 << 50 < larger.memory_max_bytes


@pytest.mark.parametrize("tasks", [1, 2, 10, 20])
def test_without_a_setting_every_copy_task_has_memory(tmp_path: Path, tasks: int) -> None:
    parts = service_parts(tasks)
    one = Memory(parts=parts, max_bytes=None, limit_bytes=24 * GIB)
    assert one.divided({})[COPIES.name] == tasks * COPY_BYTES
    config = broker_config(tmp_path, {POOL: tasks, COPIES.key: tasks * COPY_BYTES})
    assert config.copy_slots == tasks
    defaults = broker_config(tmp_path, {POOL: tasks})
    assert defaults.copy_memory_max_bytes <= tasks * COPY_BYTES, "no more than tasks need"


def test_copy_tasks_without_memory_are_a_warning(tmp_path: Path) -> None:
    given = {POOL: 4, COPIES.key: 4 * COPY_BYTES}
    with capture_logs() as logs:
        warn_of_copy_slots(broker_config(tmp_path, given))
        warn_of_copy_slots(broker_config(tmp_path, {**given, POOL: 5}))
    [line] = logs
    assert (line["event"], line["log_level"]) == ("copies_limited_by_memory", "warning")
    assert (line["copy.memory.max.bytes"], line["tasks"], line["slots"]) == (4 * COPY_BYTES, 5, 4)


def test_memory_above_what_the_machine_has_is_a_warning(tmp_path: Path) -> None:
    config = broker_config(tmp_path, {"memory.max.bytes": 792 * MIB})
    with capture_logs() as logs:
        warn_of_memory(config, 792 * MIB)
        warn_of_memory(config, 792 * MIB - 1)
    [line] = logs
    assert (line["event"], line["log_level"]) == ("memory_above_limit", "warning")
    assert (line["memory.max.bytes"], line["limit_bytes"]) == (792 * MIB, 792 * MIB - 1)


def test_a_reader_has_no_proxy_and_no_copies(tmp_path: Path) -> None:
    content = {
        "cluster.id": "c1",
        "state.dir": str(tmp_path),
        "kafka.bootstrap.servers": "h:1",
        "grpc.listen": "127.0.0.1:1",
        "http.listen": "127.0.0.1:2",
        "plugin.address": "127.0.0.1:3",
        "memory.max.bytes": 492 * MIB,
    }
    config = reader_from_mapping(content, {})
    assert config.fetch_chunk_cache_bytes == 200 * MIB
    assert config.ledger_memory_bytes == 100 * MIB
    assert {part.name for part in READER_PARTS} == {CHUNKS.name, LEDGER.name}


def test_wrong_workers_are_refused_as_such(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"^proxy.workers: must be "):
        from_mapping({**given, "proxy.workers": "many"}, {})


def _written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "1000\n"}, 1_000),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/system.slice/kafka-rlm.service\n",
                f"{V2}/system.slice/kafka-rlm.service/memory.max": "max\n",
                f"{V2}/system.slice/memory.max": "3000\n",
                f"{V2}/other.slice/memory.max": "10\n",
            },
            3_000,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/docker/1\n4:memory:/docker/1\n0::/\n",
                f"{V1}/docker/1/memory.limit_in_bytes": "2000\n",
                f"{V1}/memory.limit_in_bytes": "9223372036854771712\n",
            },
            2_000,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/docker/not-seen-from-inside\n",
                f"{V1}/memory.limit_in_bytes": "2500\n",
            },
            2_500,
        ),
        ({"proc/self/cgroup": "4:memory\n:\n\n"}, None),
        ({}, None),
    ],
)
def test_the_least_limit_of_the_cgroups_counts(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    of_machine = usable_memory_bytes(tmp_path / "nowhere")
    assert of_machine > 100 * MIB
    assert usable_memory_bytes(_written(tmp_path, files)) == (expected or of_machine)
