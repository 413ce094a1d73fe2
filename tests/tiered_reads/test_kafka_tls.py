"""The connector's own consumer over TLS, with PEM files and texts as Java has them (KIP-651)."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.certificates import Authority
from tests.tiered_reads.fake_kafka import FakeKafka
from tiered_reads.errors import KafkaClientError
from tiered_reads.kafka_client import KafkaClient
from tiered_reads.kafka_connection import LoopThread
from tiered_reads.kafka_options import kafka_settings
from tiered_reads.stopping import Stop


@contextlib.contextmanager
def behind_tls(kafka: FakeKafka, context: ssl.SSLContext) -> Iterator[str]:
    """The broker's address on a port that speaks TLS only."""
    loop = LoopThread("fake-tls")
    opened: list[asyncio.Server] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection("127.0.0.1", kafka.broker.address.port)
        await asyncio.gather(pipe(reader, inner[1]), pipe(inner[0], writer))

    async def open_server() -> int:
        opened.append(await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context))
        return int(opened[0].sockets[0].getsockname()[1])

    async def close_server() -> None:
        opened[0].close()

    port = kafka.advertised_port = loop.run(open_server(), Stop())
    try:
        yield f"127.0.0.1:{port}"
    finally:
        loop.run(close_server(), Stop())
        loop.close()


def topics(properties: dict[str, str], patience_ms: int = 60_000) -> set[str]:
    client = KafkaClient(kafka_settings(properties), patience_ms=patience_ms)
    try:
        return set(client.topics(None, Stop()))
    finally:
        client.close()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    for name in ("aiokafka", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    yield
    for name in ("aiokafka", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_pem_files_and_texts_let_us_in_and_others_not(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    server, ours = authority.issue("broker", "127.0.0.1"), clients.issue("executor")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(server.cert_file, server.key_file)
    both = tmp_path / "both.pem"
    both.write_text(ours.key_file.read_text() + ours.cert_file.read_text())
    with FakeKafka().running() as kafka, behind_tls(kafka, context) as address:
        basis = {"bootstrap.servers": address, "security.protocol": "SSL"}
        files = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.ca_file),
            "ssl.keystore.location": str(both),
        }
        texts = {
            "ssl.truststore.certificates": authority.ca_file.read_text(),
            "ssl.keystore.certificate.chain": ours.cert_file.read_text(),
            "ssl.keystore.key": ours.key_file.read_text(),
        }
        assert topics(basis | files) == topics(basis | texts) == {"t"}
        with pytest.raises(KafkaClientError, match="of no authority that is trusted"):
            topics(basis | files | {"ssl.truststore.location": str(clients.ca_file)})
        with pytest.raises(KafkaClientError, match=r"kafka\.ssl\.keystore\.location"):
            topics(basis | {"ssl.truststore.location": str(authority.ca_file)}, patience_ms=3_000)


def test_a_certificate_of_another_host_is_refused_unless_that_is_switched_off(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("broker", "another.example")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server.cert_file, server.key_file)
    with FakeKafka().running() as kafka, behind_tls(kafka, context) as address:
        given = {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(authority.ca_file),
        }
        with pytest.raises(KafkaClientError, match="does not have the host that was dialled"):
            topics(given)
        assert topics(given | {"ssl.endpoint.identification.algorithm": ""}) == {"t"}


def test_unfit_pem_is_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    with pytest.raises(
        KafkaClientError, match=r"truststore\.location: .*broken\.pem cannot be used"
    ):
        topics(
            {
                "bootstrap.servers": "127.0.0.1:9",
                "security.protocol": "SSL",
                "ssl.truststore.location": str(broken),
            }
        )
