"""On a real broker: a shorter retention needs --yes, can be undone, and deletes after its delay."""

import json

import pytest

from tests.scenarios.cluster import Cluster, Row, assert_same, fresh

pytestmark = pytest.mark.integration


def filled(one: Cluster, stem: str) -> tuple[str, list[Row]]:
    """A topic in mode tier whose oldest records only the store has."""
    topic = fresh(stem)
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=4)
    one.wait_trimmed(topic)
    one.wait_copied(topic)
    return topic, rows


def remote_start(one: Cluster, topic: str) -> int:
    return int(one.status(topic)["remote_log_start_offset"])


def test_what_is_undone_stays_and_the_rest_goes_after_the_delay(one: Cluster) -> None:
    kept, kept_rows = filled(one, "kept")
    ended, ended_rows = filled(one, "ended")
    shorter = ("--retention", "1s")

    refused = one.rlm("topics", "enable", kept, *shorter, "--json", check=False)
    assert refused.returncode == 1 and "--yes" in refused.stderr
    [row] = json.loads(refused.stdout)["deletable"]
    assert row["start_offset"] == 0 and row["end_offset"] >= one.log_start(kept)
    assert row["size_bytes"] > 1 << 20 and 0 < row["oldest_ms"] <= row["newest_ms"]
    assert one.rlm_json("topics", "describe", kept)["retention_ms"] != 1_000

    one.rlm("freeze", kept)  # these commands may take longer than the sandbox's short delay
    one.rlm("topics", "enable", kept, *shorter, "--yes")
    undone = one.rlm_json("deletions", "undo", kept)
    assert undone["retention_ms"] != 1_000
    one.rlm("unfreeze", kept)

    copied = int(one.status(ended)["remote_next_offset"])
    made = one.rlm_json("topics", "enable", ended, *shorter, "--yes")
    pending = made["pending_deletion"]
    assert (pending["retention_ms"], pending["due_in_ms"] > 0) == (1_000, True)
    one.wait_for(lambda: remote_start(one, ended) >= copied, f"all closed of {ended} expired")
    start = remote_start(one, ended)
    one.wait_for(
        lambda: all(deletion["topic"] != ended for deletion in listed(one)), "it is in force"
    )
    refused = one.rlm("deletions", "undo", ended, check=False)
    assert refused.returncode == 1 and "cannot come back" in refused.stderr

    assert_same(one.read_all(kept), kept_rows)
    assert remote_start(one, kept) == 0
    left = one.read_all(ended, start={0: remote_start(one, ended)})
    assert_same(left, ended_rows[-len(left) :])
    assert len(left) <= len(ended_rows) - start


def listed(one: Cluster) -> list[dict[str, object]]:
    return list(one.rlm_json("deletions", "list")["deletions"])
