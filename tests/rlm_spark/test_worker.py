"""What happens to the process of a task, in processes of their own."""

import os
import subprocess
import sys

import pytest

_CODE = """
import gc
from rlm_spark.worker import spare_collections
assert gc.get_freeze_count() == 0
spare_collections()
first = gc.get_freeze_count()
new = [[] for _ in range(1000)]
spare_collections()
assert gc.get_freeze_count() == first
print(first)
"""


@pytest.mark.parametrize(("reused", "is_frozen"), [("1", True), ("", False), (None, False)])
def test_what_is_loaded_is_frozen_once_where_a_worker_is_used_again(
    reused: str | None, is_frozen: bool
) -> None:
    environment = {key: text for key, text in os.environ.items() if key != "SPARK_REUSE_WORKER"}
    if reused is not None:
        environment["SPARK_REUSE_WORKER"] = reused
    done = subprocess.run(
        [sys.executable, "-c", _CODE],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (int(done.stdout) > 0) == is_frozen
