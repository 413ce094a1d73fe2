"""Spark reads a bucket in Pinterest's form, once it is imported and attached, as its broker did."""

from pathlib import Path

import pytest

from tests.builders.attached_process import attached_reader
from tests.scenarios.cluster import fresh
from tests.scenarios.imported import ISOLATIONS, imported, made_by_a_broker, plugin_file
from tests.spark.lab import Lab, assert_equal, expected, seen

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


def test_an_imported_bucket_reads_equal_to_its_broker(lab: Lab, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    theirs = made_by_a_broker(lab.cluster, fresh("theirs"), tmp_path / "bucket")
    rows = theirs.settings({"rsm.config.pinterest.root": str(theirs.root)})
    ours = {"plugin": "local", "rsm.config.root": str(store), **rows}
    imported(lab.cluster, theirs, plugin_file(tmp_path / "plugin.yaml", ours))
    before = theirs.content()
    with attached_reader(tmp_path, store, settings=rows) as reader:
        options = {
            "rlm.endpoints": reader.address,
            "readMode": "remote_only",
            "includeHeaders": "true",
            "subscribe": theirs.topic,
        }
        for level in ISOLATIONS:
            options["kafka.isolation.level"] = level
            assert_equal(seen(lab.bare(options)), expected(theirs.rows[level]))
        middle = theirs.ends[0] // 2
        some = {
            "startingOffsets": f'{{"{theirs.topic}":{{"0":{middle},"1":{theirs.ends[1]}}}}}',
            "endingOffsets": f'{{"{theirs.topic}":{{"0":-1,"1":-1}}}}',
        }
        wanted = [
            row for row in theirs.rows[ISOLATIONS[1]] if row.partition == 0 and row.offset >= middle
        ]
        assert_equal(seen(lab.bare({**options, **some})), expected(wanted))
    assert theirs.content() == before
