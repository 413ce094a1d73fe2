"""What happens to the process of a task, in processes of their own."""

import os
import platform
import subprocess
import sys

import pytest

_FREEZES = """
import gc
from rlm_spark.decoded_ahead import prepare
assert gc.get_freeze_count() == 0
prepare()
first = gc.get_freeze_count()
new = [[] for _ in range(1000)]
prepare()
assert gc.get_freeze_count() == first
print(first)
"""
_FAULTS = """
import resource, threading
from rlm_spark.decoded_ahead import prepare
prepare()

def use_memory():
    for _ in range(20):
        messages = [b"x" * (2 << 20) for _ in range(8)]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=use_memory)
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""
_IMPORTS = """
import sys
import rlm_spark.source.reading
import tiered_reads.kafka_client
print(*sorted(sys.modules))
"""
_PAGES_OF_ONE_PASS = (16 << 20) // 4096


def output(code: str, reused: str | None) -> str:
    environment = {key: text for key, text in os.environ.items() if key != "SPARK_REUSE_WORKER"}
    if reused is not None:
        environment["SPARK_REUSE_WORKER"] = reused
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return done.stdout


def run(code: str, reused: str | None) -> int:
    return int(output(code, reused))


def test_a_task_imports_nothing_of_a_service() -> None:
    imported = output(_IMPORTS, None).split()
    libraries = {name.partition(".")[0] for name in imported}
    of_services = {"aiohttp", "click", "prometheus_client", "psutil", "rich", "structlog", "yaml"}
    assert not libraries & (of_services | {"pyspark", "rlmm"})
    assert [name for name in imported if name.startswith("rsm_plugins.")] == [
        "rsm_plugins.contract",
        "rsm_plugins.contract.status",
    ]
    assert {"rlm", "rlm.v1"} >= {
        name.rpartition(".")[0] for name in imported if name.startswith("rlm.")
    }


@pytest.mark.parametrize(("reused", "is_frozen"), [("1", True), ("", False), (None, False)])
def test_what_is_loaded_is_frozen_once_where_a_worker_is_used_again(
    reused: str | None, is_frozen: bool
) -> None:
    assert (run(_FREEZES, reused) > 0) == is_frozen


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_is_not_given_back_between_messages() -> None:
    """20 passes use the same pages; a process of its own user's faults on them again and again."""
    assert run(_FAULTS, "1") < 3 * _PAGES_OF_ONE_PASS < run(_FAULTS, None)
