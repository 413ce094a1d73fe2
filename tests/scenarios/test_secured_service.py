"""A service beside a secured broker: it is refused, says why, is let in, tiers, and keeps secrets.

The broker ends sessions after seconds, so all of it is done over renewed sessions, too.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from rlm_sandbox.ports import PortReservation
from rlm_sandbox.services import QUICK_SERVICE
from tests.builders.secured_kafka import (
    ALICE,
    ALICES,
    SESSION_MS,
    SecuredKafka,
    start_secured_kafka,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WRONG = "wrong-and-never-shown"
IN_ENVIRONMENT = "planted-in-the-environment"
PLANTED = (ALICES, WRONG, IN_ENVIRONMENT)
TOPIC = "secured"
RECORDS = 600


@dataclass(slots=True)
class Service:
    """`rlm serve` beside the broker, as a user starts it."""

    kafka: SecuredKafka
    folder: Path
    ports: dict[str, int]
    process: "subprocess.Popen[bytes] | None" = None
    said: str = field(default="", repr=False)

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    @property
    def log(self) -> str:
        return (self.folder / "service.log").read_text()

    def start(self) -> None:
        config = self.folder / "rlm.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        environment = {**os.environ, "RLM_KAFKA_SSL_KEY_PASSWORD": IN_ENVIRONMENT}
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rlm.cli.main", "serve", "--config", str(config)],
                stdout=log,
                stderr=log,
                env=environment,
            )

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(120)

    def _config(self) -> dict[str, Any]:
        address = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        return {
            "node.id": 1,
            "cluster.id": self.kafka.cluster_id,
            "log.dirs": [str(self.kafka.folder / "data")],
            "state.dir": str(self.folder / "state"),
            "broker.direct.address": str(self.kafka.address("SASLTLS")),
            "broker.tiered.listener.name": "SCRAMONLY",
            "broker.tiered.address": str(self.kafka.address("SCRAMONLY")),
            "proxy.listen": address["proxy"],
            "proxy.advertised": address["proxy"],
            "grpc.listen": address["grpc"],
            "http.listen": address["http"],
            "plugin": "local",
            "rsm.config.root": str(self.folder / "store"),
            "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
            **QUICK_SERVICE,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": str(self.kafka.authority.ca_file),
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": ALICE,
            "kafka.sasl.password.file": str(self.password_file),
        }

    def http(self, path: str) -> str:
        """What it answers; nothing while it does not."""
        url = f"http://127.0.0.1:{self.ports['http']}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        except OSError:
            return ""
        self.said += text
        return str(text)

    def rlm(self, *words: str) -> str:
        address = ("--address", f"127.0.0.1:{self.ports['grpc']}")
        done = subprocess.run(
            [sys.executable, "-m", "rlm.cli.main", *words, *address],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        self.said += done.stdout + done.stderr
        return done.stdout + done.stderr

    def problems(self) -> list[dict[str, str]] | None:
        """None where it does not answer."""
        text = self.http("/healthz")
        found: list[dict[str, str]] | None = json.loads(text).get("problems", []) if text else None
        return found

    def wait_for(self, holds: Callable[[], object], what: str, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert self.process is not None and self.process.poll() is None, self.log[-3_000:]
            assert time.monotonic() < deadline, f"{what}: {self.problems()} {self.log[-3_000:]}"
            time.sleep(0.2)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "store").mkdir()
    with PortReservation() as reservation:
        ports = {name: reservation.take() for name in ("proxy", "grpc", "http")}
        kafka = start_secured_kafka(tmp_path, {"SCRAMONLY": ports["proxy"]})
    made = Service(kafka=kafka, folder=tmp_path, ports=ports)
    try:
        asyncio.run(kafka.wait_ready())
        made.password_file.write_text(WRONG)
        made.start()
        yield made
    finally:
        made.stop()
        kafka.down()


def consumer_of(port: int) -> Consumer:
    """An unmodified client with an identity of its own."""
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": ALICE,
        "sasl.password": ALICES,
        "group.id": "reads",
        "auto.offset.reset": "earliest",
    }
    return Consumer(settings)


def fill(kafka: SecuredKafka, admin: AdminClient) -> None:
    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": "1048576"})
    admin.create_topics([topic])[TOPIC].result(120)
    producer = Producer({"bootstrap.servers": str(kafka.address("BARE"))})
    for number in range(RECORDS):
        producer.produce(TOPIC, value=b"%d " % number + os.urandom(8_000))
    assert producer.flush(120) == 0


def log_start(admin: AdminClient) -> int:
    """The broker's own."""
    partition = TopicPartition(TOPIC, 0)
    found: int = (
        admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(120).offset
    )
    return found


def read_all(port: int) -> list[int]:
    consumer = consumer_of(port)
    consumer.subscribe([TOPIC])
    found: list[int] = []
    deadline = time.monotonic() + 120
    while len(found) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(int((message.value() or b"").split()[0]))
    consumer.close()
    return found


def children_of(service: Service) -> list[psutil.Process]:
    assert service.process is not None
    return psutil.Process(service.process.pid).children(recursive=True)


def test_a_service_is_refused_says_why_is_let_in_and_tiers(service: Service) -> None:
    def refusals() -> list[str]:
        found = service.problems()
        return [one["text"] for one in found or () if one["kind"] == "kafka-refused"]

    def has_ended() -> bool:
        return service.problems() is not None and not refusals()

    found: list[str] = []

    def is_refused() -> bool:
        found[:] = refusals()
        return bool(found)

    service.wait_for(is_refused, "a problem that says why")
    [text] = found
    assert text.startswith("authentication failed")
    assert f"look at kafka.sasl.username ({ALICE}) and kafka.sasl.password" in text
    service.wait_for(lambda: "kafka-refused" in service.rlm("status"), "the problem in the status")
    service.password_file.write_text(ALICES)
    service.wait_for(has_ended, "the end of the problem")
    admin = AdminClient({"bootstrap.servers": str(service.kafka.address("BARE"))})
    fill(service.kafka, admin)
    service.wait_for(lambda: "well" in service.rlm("status"), "a service that is well")
    enable = ("topics", "enable", TOPIC, "--trim", "--local-retention-bytes", "1")
    not_yet = "has never said that it lives"
    service.wait_for(lambda: not_yet not in service.rlm(*enable), "a service that knows itself")
    store = service.folder / "store"
    service.wait_for(lambda: len(list(store.rglob("*.log"))) >= 3, "copies of segments")
    service.wait_for(lambda: log_start(admin) > 0, "a trim by DeleteRecords")
    assert read_all(service.ports["proxy"]) == list(range(RECORDS))
    time.sleep(2 * SESSION_MS / 1000)
    assert refusals() == []
    assert_nothing_is_shown(service)


def assert_nothing_is_shown(service: Service) -> None:
    """Neither in what the service says, nor in what runs, nor in what its children get."""
    assert service.process is not None
    service.http("/metrics")
    own = psutil.Process(service.process.pid)
    children = children_of(service)
    assert children, "the plugin"
    shown = [
        service.log,
        service.said,
        *(" ".join(one.cmdline()) for one in (own, *children)),
        *(str(one.environ()) for one in children),
        *(path.read_text(errors="replace") for path in (service.folder / "state").rglob("*.json")),
    ]
    for secret in PLANTED:
        assert not any(secret in one for one in shown), secret
    assert IN_ENVIRONMENT in str(own.environ()), "it was planted"
