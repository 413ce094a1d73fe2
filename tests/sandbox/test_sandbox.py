"""The sandbox against a real Kafka: up, the verbs, down, and what wrong use is answered."""

import json
import socket
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from rlm_sandbox.command import sandbox as sandbox_command
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxError, SandboxSpec
from tests.sandbox_fixtures import SandboxFactory

pytestmark = pytest.mark.integration


def processes_of(root: Path) -> list[str]:
    """Command lines on this machine that name the sandbox's directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(root) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


def test_a_sandbox_lives_through_all_verbs(tmp_path: Path) -> None:
    root = tmp_path / "with space é"
    spec = SandboxSpec(services=False, jvm="quick", log_dirs=2)
    made = Sandbox.up(root, spec)
    try:
        document = made.json
        assert json.loads((root / "sandbox.json").read_text()) == document
        assert document["direct_bootstrap"] == document["brokers"][0]["direct"]
        assert len(document["brokers"][0]["log_dirs"]) == 2
        assert document["changed_broker_defaults"]["log.retention.check.interval.ms"] == "1000"

        created = made.dist.run_tool(
            "topics", "--bootstrap-server", made.direct_bootstrap, "--create", "--topic", "t"
        )
        assert created.returncode == 0, created.stderr
        while sum(len(list(path.glob("t-0"))) for path in made.log_dirs()) != 1:
            time.sleep(0.05)

        with pytest.raises(SandboxError, match="is running: take it down first"):
            Sandbox.up(root, spec)
        made.pause("broker:1")
        assert [row.state for row in made.status()] == ["paused"]
        with pytest.raises(SandboxError, match=r"broker:1 is paused"):
            made.start("broker:1")
        made.resume("broker:1")
        made.kill("broker:1")
        assert [row.state for row in made.status()] == ["stopped"]
        with pytest.raises(SandboxError, match=r"broker:1 is not running"):
            made.pause("broker:1")

        made.start("broker:1")
        again = made.json
        assert again["brokers"][0]["broker_pid"] != document["brokers"][0]["broker_pid"]
        assert again["direct_bootstrap"] == document["direct_bootstrap"]
        with pytest.raises(SandboxError, match=r"broker:2: no process of this sandbox"):
            made.kill("broker:2")
        made.stop("broker:1")
        assert (made.log_dirs()[0] / ".kafka_cleanshutdown").exists()
        port = int(document["direct_bootstrap"].split(":")[1])
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(SandboxError, match=rf"broker:1: port {port} is taken"),
        ):
            made.start("broker:1")
    finally:
        made.down()
    assert processes_of(root) == []
    assert (root / "logs" / "broker-1.log").exists()

    revived = Sandbox.up(root, spec)
    try:
        assert revived.direct_bootstrap == document["direct_bootstrap"]
        listed = revived.dist.run_tool(
            "topics", "--bootstrap-server", revived.direct_bootstrap, "--list"
        )
        assert "t" in listed.stdout.split()
    finally:
        revived.down(delete=True)
    assert not root.exists()
    assert processes_of(root) == []


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(
    sandbox_factory: SandboxFactory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp()
    before = set(processes_of(base))  # other tests' sandboxes, of which some may end meanwhile
    with pytest.raises(SandboxError) as caught:
        sandbox_factory(services=False, overrides=("broker.num.network.threads=none",))
    message = str(caught.value)
    assert "num.network.threads" in message
    assert set(processes_of(base)) <= before


def test_a_service_that_cannot_start_says_why_and_leaves_nothing(
    sandbox_factory: SandboxFactory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp()
    before = set(processes_of(base))  # other tests' sandboxes, of which some may end meanwhile
    with pytest.raises(SandboxError, match=r"rlm:1 ended while starting; the end of .*rlm-1\.log"):
        sandbox_factory(overrides=("rlm.log.level=loud",))
    assert set(processes_of(base)) <= before


def test_the_command_prints_the_document_last_and_takes_all_down(tmp_path: Path) -> None:
    root = tmp_path / "s"
    runner = CliRunner()
    started = runner.invoke(
        sandbox_command, ["up", "--dir", str(root), "--brokers-only", "--jvm", "quick"]
    )
    try:
        assert started.exit_code == 0, started.output
        assert json.loads(started.stdout)["dir"] == str(root)
        shown = runner.invoke(sandbox_command, ["status", "--dir", str(root), "--json"])
        assert shown.exit_code == 0
        assert [row["state"] for row in json.loads(shown.stdout)] == ["running"]
    finally:
        ended = runner.invoke(sandbox_command, ["down", "--dir", str(root)])
    assert ended.exit_code == 0
    assert processes_of(root) == []
    assert runner.invoke(sandbox_command, ["status", "--dir", str(root)]).exit_code == 1
