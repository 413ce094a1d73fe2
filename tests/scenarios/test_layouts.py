"""A topic whose segments have several layouts, on a real broker and the store of the sandbox."""

import pytest

from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.objects import finished_segments, names_of, objects_of

pytestmark = pytest.mark.integration

_KEPT = ("--local-retention-bytes", "1048576")


def test_a_topic_whose_layout_changes_is_read_through(one: Cluster) -> None:
    topic = fresh("layouts")
    one.create_topic(topic)
    one.enable(topic, "--trim", *_KEPT, "--layout", "blocks")
    rows = one.fill(topic, mib=3)
    blocks = one.wait_trimmed(topic)
    one.enable(topic, "--trim", *_KEPT, "--layout", "kafka")
    rows += one.fill(topic, mib=3, first=len(rows))
    one.wait_copied(topic)
    one.wait_trimmed(topic, beyond=len(rows) // 2 + 1024)
    found = [(at.start_offset, str(at.custom().layout)) for at in finished_segments(one, topic)]
    assert {layout for start, layout in found if start < blocks} == {"blocks"}
    assert {layout for _, layout in found} == {"blocks", "kafka"}
    suffixes = {name.rpartition(".")[2] for name in names_of(objects_of(one), topic)}
    assert suffixes == {"blocks", "blocks-index", "log", "indexes", "rsm-manifest"}
    assert_same(one.read_all(topic), rows)
    assert "clean" in one.rlm("verify", topic, "--deep").stdout
