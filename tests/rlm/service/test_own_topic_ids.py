"""A proxy knows the service's own topics by id before anybody has seen them, from the state dir."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rlm.config import ServiceConfig
from rlm.service.metadata import RememberedTopics
from rlm.service.supervised import _worker_line
from rlm.workers.worker import WorkerSettings
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.service import broker_config
from tests.rlmm.builders import uuid


def worker_ids(config: ServiceConfig) -> set[bytes]:
    """The ids that a new worker begins with."""
    found = WorkerSettings.of(_worker_line(config, 0, 1, 0))
    return set(map(bytes.fromhex, found.own_topic_ids))


def test_h24_a_worker_begins_with_the_ids_that_an_earlier_process_has_seen(tmp_path: Path) -> None:
    config = broker_config(tmp_path, {})
    file = RememberedTopics(config.state_dir, config.cluster_id)
    with capture_logs() as logs:
        assert worker_ids(config) == set()  # the first process of all
    assert logs == []
    file.write({LEDGER_TOPIC: uuid(4), SETTINGS_TOPIC: uuid(5)})
    assert worker_ids(config) == {uuid(4).raw, uuid(5).raw}
    file.write({LEDGER_TOPIC: uuid(6), SETTINGS_TOPIC: uuid(5)})  # the ledger was rebuilt
    assert worker_ids(config) == {uuid(6).raw, uuid(5).raw}


def test_one_of_two_ids_is_none(tmp_path: Path) -> None:
    """With it requests would be taken that name topics by id, and nothing would be refused by the
    other one.
    """
    config = broker_config(tmp_path, {})
    RememberedTopics(config.state_dir, config.cluster_id).write({SETTINGS_TOPIC: uuid(5)})
    assert worker_ids(config) == set()


@pytest.mark.parametrize("content", ["", "{}", '{"cluster_id": "another", "topics": {}}', "5"])
def test_ids_of_another_cluster_and_files_that_are_not_ours_count_for_nothing(
    tmp_path: Path, content: str
) -> None:
    config = broker_config(tmp_path, {})
    file = RememberedTopics(config.state_dir, config.cluster_id)
    file.write({LEDGER_TOPIC: uuid(4), SETTINGS_TOPIC: uuid(5)})
    [path] = config.state_dir.glob("topics.json")
    if "another" in content:
        content = json.dumps({**json.loads(path.read_text()), "cluster_id": "another"})
    path.write_text(content)
    with capture_logs() as logs:
        assert worker_ids(config) == set()
    assert [one["event"] for one in logs] == ["own_topics_not_read"]
