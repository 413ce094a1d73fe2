"""A secret of a secured cluster is in nothing that a service shows: not in logs, metrics, health,
problems or errors of commands, not on a command line, and not in the environment of its children.

Its service has proxy workers, an S3 store, a token of the API, and passwords by files and by the
environment. Commands succeed and fail here, clients and callers bring wrong secrets, and the store
goes away for a while.
"""

import contextlib
import os
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import CLIENTS, saved_secrets
from rlm_sandbox.spec import Override, SandboxSpec
from tests.builders import secured_clients
from tests.sandbox_fixtures import patient
from tests.scenarios.cluster import Cluster, assert_same, fresh

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

IN_ENVIRONMENT = "planted-in-the-environment-7f3a"
API_TOKEN = "planted-token-of-the-api-91c2"
WRONG = "wrong-but-secret-of-somebody-5be0"
WORKER = "rlm.workers.worker"


class Planted(Cluster):
    """`said` is all that commands and HTTP have answered."""

    said = ""

    def _admin_config(self) -> dict[str, Any]:
        return secured_clients.librdkafka(self.sandbox.json, "admin")

    def command(self, *words: str, fails: bool = False) -> str:
        """Its output."""
        done = self.rlm(*words, check=not fails)
        assert not fails or done.returncode != 0, done.stdout + done.stderr
        self.said += done.stdout + done.stderr
        return done.stdout + done.stderr

    def get(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.sandbox.state.ports[1].http}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = str(answer.read().decode())
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        self.said += text
        return text

    @property
    def service(self) -> psutil.Process:
        return psutil.Process(self.sandbox.state.processes["rlm:1"].pid)

    @property
    def logs(self) -> str:
        names = self.sandbox.state.processes
        ours = [one for one in names if one.startswith(("rlm:", "plugin:"))]
        assert len(ours) == 2
        return "".join(self.sandbox.layout.log(one).read_text("utf-8") for one in ours)

    def secrets(self) -> dict[str, str]:
        """All that must not be seen, by what it is."""
        layout = self.sandbox.layout
        files = SecurityFiles(folder=layout.security)
        saved = saved_secrets(files.secrets)
        store = layout.store_credentials.read_text().split("aws_secret_access_key")[1]
        found = {
            "in environment": IN_ENVIRONMENT,
            "API token": API_TOKEN,
            "somebody's": WRONG,
            "store": store.split("\n")[0].strip(" ="),
            "delegation key": saved.delegation_token_key,
            **{f"password of {name}": word for name, word in saved.passwords.items()},
        }
        for name in CLIENTS:
            found[f"token of {name}"] = files.token(name).read_text("ascii")
            found[f"key of {name}"] = files.key(name).read_text("ascii").splitlines()[1]
        assert all(len(one) > 20 for one in found.values())
        return found


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    token = tmp_path_factory.mktemp("token") / "api"
    token.write_text(API_TOKEN)
    rows = ("proxy.workers=2", f"api.token.file={token}", "log.level=debug")
    spec = SandboxSpec(
        security="sasl_ssl",
        store="s3",
        jvm="quick",
        overrides=tuple(Override.parse(f"rlm.{row}") for row in rows),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLM_TOKEN_FILE", str(token))
        given = {"RLM_KAFKA_SSL_KEY_PASSWORD": IN_ENVIRONMENT}
        folder = tmp_path_factory.mktemp("planted")
        made = Sandbox.up(folder, patient(spec), service_variables=given)
        try:
            admin = secured_clients.librdkafka(made.json, "admin", proxy=True)
            with Planted(made, admin) as cluster:
                yield cluster
        finally:
            made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


def use(cluster: Planted, folder: Path) -> None:
    """What succeeds and what fails, as far as secrets have a part in it."""
    topic = fresh("planted")
    cluster.create_topic(topic)
    acked = cluster.fill(topic, mib=4)
    cluster.enable(topic)
    cluster.command("topics", "enable", topic, "--trim", "--local-retention-bytes", "1048576")
    cluster.wait_trimmed(topic)
    assert_same(cluster.read_all(topic), acked)
    doctor = ("doctor", "--store")  # a busy machine may show it a problem for a moment
    cluster.wait_for(lambda: cluster.rlm(*doctor, check=False).returncode == 0, "a sound site")
    for words in (("status",), ("topics", "list"), ("segments", topic), doctor):
        cluster.command(*words)
        cluster.command(*words, "--json")
    cluster.command("topics", "enable", "there-is-no-such-topic", fails=True)
    wrong = folder / "wrong-token"
    wrong.write_text(WRONG)
    cluster.command("status", "--token-file", str(wrong), fails=True)
    config = yaml.safe_load(cluster.sandbox.layout.rlm_config(1).read_text())
    config["kafka.sasl.password.file"] = str(wrong)
    other = folder / "rlm.yaml"
    other.write_text(yaml.safe_dump(config))
    cluster.command("acls", "--check", "--config", str(other), fails=True)
    _fails_at_the_proxy(cluster, topic)
    cluster.sandbox.stop("store")
    cluster.fill(topic, mib=2, first=10_000)
    cluster.wait_for(lambda: "s3" in cluster.command("status").lower(), "trouble with the store")
    cluster.sandbox.start("store")
    for path in ("/metrics", "/healthz", "/readyz", "/problems", "/"):
        with contextlib.suppress(urllib.error.URLError):
            cluster.get(path)


def _fails_at_the_proxy(cluster: Planted, topic: str) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        config = secured_clients.librdkafka(
            cluster.sandbox.json, "reader", mechanism=mechanism, proxy=True
        )
        consumer = Consumer(
            {**config, "sasl.password": WRONG, "group.id": fresh("group"), "log_level": 0}
        )
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            assert consumer.poll(3) is None
        finally:
            consumer.close()


def test_a_planted_secret_is_shown_nowhere(planted: Planted, tmp_path: Path) -> None:
    use(planted, tmp_path)
    own = planted.service
    children = own.children(recursive=True)
    workers = [one for one in children if WORKER in " ".join(one.cmdline())]
    assert len(workers) == 2
    lines = [" ".join(one.cmdline()) for one in (own, *children)]
    plugin = psutil.Process(planted.sandbox.state.processes["plugin:1"].pid)
    lines.append(" ".join(plugin.cmdline()))
    archive = tmp_path / "diagnosis.tar.gz"
    planted.command("diagnose", "--output", str(archive))
    with tarfile.open(archive) as opened:
        documents = [opened.extractfile(one) for one in opened.getmembers()]
        diagnosis = "".join(one.read().decode() for one in documents if one is not None)
    assert "kafka.sasl.username" in diagnosis, "settings are in it"
    shown = {
        "a diagnosis": diagnosis,
        "a log": planted.logs,
        "an answer": planted.said,
        "a command line": "\n".join(lines),
        "the environment of a worker": "\n".join(str(one.environ()) for one in workers),
    }
    assert all(len(text) > 200 for text in shown.values())
    assert "rlm_proxy_answers_total" in planted.said, "metrics were read"
    assert "no valid token" in planted.said, "a wrong token was refused"
    found = [
        f"{what} is in {where}"
        for what, secret in planted.secrets().items()
        for where, text in shown.items()
        if secret in text
    ]
    assert found == []
    assert IN_ENVIRONMENT in str(own.environ()), "it was planted"
