"""TLS at the proxy before a real Kafka with SASL, whose tiered listener has TLS or has none: three
kinds of clients, each with its own identity. The proxy is a worker without a core.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from rlm.proxy.listening import listen
from rlm.proxy.tls_files import ListenerTls, ProxyTls, UpstreamTls
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import BROKER
from rlm_sandbox.spec import Override, SandboxSpec
from tests.builders import secured_clients
from tests.builders.opened import opened
from tests.rlm.proxy.fakes import FakeBroker
from tests.rlm.proxy.test_h36_hostile import Causes
from tests.rlm.proxy.test_pass_through import raw_request
from tests.rlm.workers.test_h24_worker_process import end, start
from tests.sandbox.test_secured_cluster import NOTHING_S, create_topic, read, written
from tests.sandbox_fixtures import patient

pytestmark = pytest.mark.integration

TOPIC = "behind-tls"
VALUES = [b"a", b"b", b"c"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A broker, and what its proxy is to speak."""

    sandbox: Sandbox
    tls: ProxyTls

    def through(self, name: str, mechanism: str | None = None) -> dict[str, Any]:
        """librdkafka, by SASL_SSL to the proxy."""
        config = secured_clients.librdkafka(self.sandbox.json, name, mechanism=mechanism)
        return {**config, "bootstrap.servers": self.sandbox.bootstrap}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """One broker with one topic of three records."""
    tiered = "SASL_SSL" if request.param else "SASL_PLAINTEXT"
    rows = f"DIRECT:SASL_SSL,TIERED:{tiered},CONTROLLER:SASL_SSL"
    changed = (Override.parse(f"broker.listener.security.protocol.map={rows}"),)
    spec = SandboxSpec(security="sasl_ssl", services=False, jvm="quick", overrides=changed)
    made = Sandbox.up(tmp_path_factory.mktemp("secured-proxy"), patient(spec))
    files = SecurityFiles(folder=made.layout.security)
    listener = ListenerTls(
        cert_file=str(files.certificate(BROKER)), key_file=str(files.key(BROKER))
    )
    upstream = UpstreamTls(ca_file=str(files.ca), server_name="localhost")
    try:
        admin = secured_clients.librdkafka(made.json, "admin")
        create_topic(admin, TOPIC)
        assert written(admin, TOPIC, *VALUES) == [None, None, None]
        tls = ProxyTls(listener=listener, upstream=upstream if request.param else None)
        yield Secured(sandbox=made, tls=tls)
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


@asynccontextmanager
async def proxy(secured: Secured, folder: Path, **limits: int) -> AsyncIterator[Causes]:
    """A worker where the broker advertises its tiered listener."""
    ports = secured.sandbox.state.ports[1]
    log = folder / "log"
    broker = FakeBroker(port=ports.tiered)
    with listen("127.0.0.1", ports.proxy) as (listening,), log.open("wb") as file:
        process = await start(
            0, listening, broker, folder, tls=secured.tls, stderr=file, log_level="info", **limits
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(120):
                assert await process.stdout.readline() == b"ready\n"
            yield Causes(log)
        finally:
            await end(process)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_librdkafka_is_who_it_is_by_every_mechanism(
    secured: Secured, tmp_path: Path, mechanism: str
) -> None:
    async with proxy(secured, tmp_path):
        reader, denied = (secured.through(name, mechanism) for name in ("reader", "denied"))
        assert await asyncio.to_thread(read, reader, TOPIC, 3) == VALUES
        refused = await asyncio.to_thread(written, reader, TOPIC, b"x")
        assert refused == ["TOPIC_AUTHORIZATION_FAILED"]
        assert await asyncio.to_thread(read, denied, TOPIC, 1) == ["GROUP_AUTHORIZATION_FAILED"]


async def test_aiokafka_and_java_read(secured: Secured, tmp_path: Path) -> None:
    document, bootstrap = secured.sandbox.json, secured.sandbox.bootstrap
    async with proxy(secured, tmp_path):
        arguments = secured_clients.aiokafka(document, "reader") | {"bootstrap_servers": bootstrap}
        async with opened(aiokafka.AIOKafkaConsumer(**arguments)) as consumer:
            partition = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)  # where a log begins a worker without a core does not know
            assert [(await consumer.getone()).value for _ in range(3)] == VALUES
        argv = secured.sandbox.dist.java_command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--partition", "0"),
            *("--offset", "0", "--max-messages", "3", "--timeout-ms", "60000"),
            *("--consumer.config", document["security"]["reader"]["client_properties"]),
            jvm=("-Xmx256m",),
        )
        done = await asyncio.to_thread(
            subprocess.run, argv, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.stdout.split()[-3:] == ["a", "b", "c"], done.stderr[-2_000:]


async def test_a_wrong_password_is_the_brokers_to_refuse_and_is_in_no_log(
    secured: Secured, tmp_path: Path
) -> None:
    async with proxy(secured, tmp_path):
        wrong = {**secured.through("reader", "PLAIN"), "sasl.password": "planted-secret"}
        with pytest.raises(AssertionError, match=r"\[\]"):  # nothing comes, and no error either
            quiet = {**wrong, "log_level": 0}
            await asyncio.to_thread(read, quiet, TOPIC, 1, timeout_s=NOTHING_S)
        assert await asyncio.to_thread(read, secured.through("reader", "PLAIN"), TOPIC, 3) == VALUES
    log = (tmp_path / "log").read_text(encoding="utf-8")
    passwords = [secured.sandbox.json["security"][name]["password"] for name in ("admin", "reader")]
    assert not [word for word in ("planted-secret", *passwords) if word in log]


async def test_a_principal_has_so_many_connections(secured: Secured, tmp_path: Path) -> None:
    async with proxy(secured, tmp_path, max_connections_per_principal=1) as causes:
        config = {**secured.through("reader", "SCRAM-SHA-512"), "log_level": 0, "group.id": "one"}
        # A commit at its end would wait for a connection to the coordinator, its second, for ever.
        holder = Consumer({**config, "enable.auto.commit": False})
        try:
            holder.assign([TopicPartition(TOPIC, 0, 0)])
            assert await asyncio.to_thread(holder.poll, 120) is not None
            with pytest.raises(AssertionError, match=r"\[\]"):  # nothing comes
                await asyncio.to_thread(read, config, TOPIC, 1, timeout_s=NOTHING_S)
        finally:
            await asyncio.to_thread(holder.close)
        assert causes()["principal_connections"] >= 1


async def test_who_speaks_no_tls_gets_nowhere(secured: Secured, tmp_path: Path) -> None:
    async with proxy(secured, tmp_path) as causes:
        port = secured.sandbox.state.ports[1].proxy
        with socket.create_connection(("127.0.0.1", port), 60) as plain:
            plain.sendall(raw_request(18, 1, b"\0"))
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(plain.recv, 1) == b""
        async with asyncio.timeout(60):
            while not causes():  # noqa: ASYNC110 - of a log of another process
                await asyncio.sleep(0.05)
        assert causes() == {"plain_on_tls": 1}
