"""What `rlm serve` logs of the environment when it starts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from rlm.service.lifetime import log_variables

HIDDEN = "hidden-from-all"
EVENT = "settings_of_environment"
DRAFT_EVENT = "setting_by_draft_name"


def settings(role: str, folder: Path) -> dict[str, Any]:
    """Of a service whose Kafka is not there."""
    common = {
        "cluster.id": "c1",
        "state.dir": str(folder / "state"),
        "grpc.listen": f"unix:{folder}/g",
        "http.listen": "127.0.0.1:2",
        "plugin.address": "127.0.0.1:1",
    }
    if role == "reader":
        return {**common, "kafka.bootstrap.servers": "127.0.0.1:1"}
    return {
        **common,
        "node.id": 3,
        "log.dirs": [str(folder / "logs")],
        "broker.direct.address": "127.0.0.1:1",
        "broker.tiered.address": "127.0.0.1:3",
        "proxy.listen": "127.0.0.1:4",
        "proxy.workers": 0,
        "rlm_process_interval_ms": 7_000,
    }


def test_variables_are_logged_by_name_alone() -> None:
    given = {"RLM_LOG_LEVEL": "debug", "RLM_KAFKA_SASL_PASSWORD": HIDDEN, "RLM_NODE_ID": ""}
    with capture_logs() as logs:
        log_variables({**given, "RLM_TOKEN_FILE": "/t", "PATH": "/bin"})
    names = ["RLM_KAFKA_SASL_PASSWORD", "RLM_LOG_LEVEL"]
    assert logs == [{"event": EVENT, "log_level": "info", "variables": names}]
    with capture_logs() as logs:
        log_variables({"PATH": "/bin", "RLM_NODE_ID": ""})
    assert logs == []


@pytest.mark.parametrize("role", ["broker", "reader"])
def test_a_service_says_at_its_start_what_the_environment_changed(
    role: str, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/meta.properties").write_text("version=1\ncluster.id=c1\nnode.id=3\n")
    config = tmp_path / "rlm.yaml"
    config.write_text(yaml.safe_dump(settings(role, tmp_path)))
    command = [sys.executable, "-m", "rlm.cli.main", "serve", "--role", role]
    process = subprocess.Popen(
        [*command, "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RLM_LOG_FORMAT": "json", "RLM_KAFKA_SASL_PASSWORD": HIDDEN},
    )
    assert process.stderr is not None
    lines = []
    awaited = {EVENT} if role == "reader" else {EVENT, DRAFT_EVENT}
    said: dict[str, Any] = {}
    try:
        for line in process.stderr:
            lines.append(line)
            said |= {event: json.loads(line) for event in awaited if event in line}
            if said.keys() == awaited:
                break
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    if role == "broker":
        assert said[DRAFT_EVENT]["setting"] == "rlm_process_interval_ms"
        assert "remote.log.manager.task.interval.ms" in said[DRAFT_EVENT]["today"]
    assert said[EVENT]["variables"] == ["RLM_KAFKA_SASL_PASSWORD", "RLM_LOG_FORMAT"]
    assert HIDDEN not in "".join(lines)
