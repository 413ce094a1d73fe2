"""`rlm doctor` beside a real broker: nothing where all is sound, and each planted fault."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from rlm.diagnosis.table import CHECKS
from tests.scenarios.cluster import Cluster, fresh

pytestmark = pytest.mark.integration

_OF_THIS_MACHINE = {"open-files", "c-library", "disk-space", "store-space"}
_NOBODY = "127.0.0.1:1"
_UNASKED = 2
"""The exit status where something could not be asked."""


class Doctor:
    """Runs it with the settings of the service, some of them changed."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path) -> None:
        self._cluster = cluster
        self._topic = topic
        self._path = folder / "rlm.yaml"

    def run(self, *options: str, **changed: str) -> subprocess.CompletedProcess[str]:
        """An empty value takes a setting away."""
        service = self._cluster.sandbox.layout.rlm_config(1)
        settings = yaml.safe_load(service.read_text(encoding="utf-8"))
        settings |= {name.replace("_", "."): value for name, value in changed.items()}
        settings = {name: value for name, value in settings.items() if value != ""}
        self._path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return self._cluster.rlm(
            "doctor", "--config", str(self._path), *options, check=False, again=False
        )

    def assert_found(self, expected: set[str], bootstrap: str, **changed: str) -> dict[str, str]:
        """The findings of these checks, once all sources could be asked and no others have any: on
        a busy machine a source may not answer for a moment, and a problem come and go.
        """
        last: list[Any] = []

        def is_so() -> bool:
            unasked, found = self._found(bootstrap, **changed)
            last[:] = [unasked, found]
            return not unasked and found.keys() == expected

        try:
            self._cluster.wait_for(is_so, f"doctor finds {expected or 'nothing'}")
        except AssertionError as error:
            raise AssertionError(f"not asked, and found: {last}; {error}") from error
        return {check: " ".join(texts) for check, texts in last[1].items()}

    def _found(self, bootstrap: str, **changed: str) -> tuple[list[str], Mapping[str, list[str]]]:
        """What could not be asked, and findings by check, without those of this machine and of
        topics of earlier tests.
        """
        done = self.run("--as-client", bootstrap, "--json", "--timeout", "90", **changed)
        if done.returncode == _UNASKED:
            return [done.stderr + done.stdout], {}
        answer = json.loads(done.stdout)
        assert done.returncode == int(not answer["sound"]), done.stderr
        checks = answer["checks"]
        assert [one["check"] for one in checks] == [check.name for check in CHECKS]
        unasked = [one["unasked"] for one in checks if one["unasked"]]
        return unasked, {
            one["check"]: ours
            for one in checks
            if one["check"] not in _OF_THIS_MACHINE and (ours := list(self._ours(one)))
        }

    def _ours(self, check: Mapping[str, Any]) -> Iterator[str]:
        for one in check["findings"]:
            of_a_topic = check["check"] == "problems" or one["subject"].startswith("topic ")
            if not of_a_topic or self._topic in one["subject"]:
                yield one["text"] + one["remedy"]


def test_a_sound_site_has_no_findings_and_planted_faults_are_found(
    one: Cluster, tmp_path: Path
) -> None:
    topic = fresh("examined")
    one.create_topic(topic)
    one.enable(topic)
    one.fill(topic, mib=3)
    one.wait_trimmed(topic)
    one.wait_settled(topic)
    [broker] = one.sandbox.json["brokers"]
    doctor = Doctor(one, topic, tmp_path)
    doctor.assert_found(set(), broker["proxy"])
    _alter(one, topic, "file.delete.delay.ms", "100")
    one.wait_for(
        lambda: one.topic_config(topic)["file.delete.delay.ms"][0] == "100", "the broker knows it"
    )
    empty = tmp_path / "another-store"
    empty.mkdir()
    found = doctor.assert_found(
        {"as-client", "delete-delay", "listeners", "store-identity"},
        broker["direct"],
        plugin="local",
        plugin_address="",
        rsm_config_root=str(empty),
        proxy_advertised="elsewhere:9092",
    )
    text = found["store-identity"]
    assert "the store has no identity" in text and "give another store a new name" in text
    text = found["as-client"]
    assert f"clients learn {broker['direct']}" in text and broker["proxy"] in text
    done = doctor.run()
    assert done.returncode == 1, done.stderr
    assert (
        f"warning: delete-delay: topic {topic}: the broker removes a deleted segment" in done.stdout
    )
    assert "  to mend it: set log.segment.delete.delay.ms of the brokers" in done.stdout


def test_a_broker_that_does_not_answer_is_no_verdict(one: Cluster, tmp_path: Path) -> None:
    doctor = Doctor(one, "", tmp_path)
    silent = {"broker_server_properties": "", "broker_direct_address": _NOBODY}
    done = doctor.run("--timeout", "5", **silent)
    assert done.returncode == 2 and "NOT ASKED" in done.stdout
    assert done.stderr.startswith("rlm: the broker cannot be asked: ")
    assert done.stderr.count("\n") == 1


def _alter(cluster: Cluster, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result(timeout=120)
