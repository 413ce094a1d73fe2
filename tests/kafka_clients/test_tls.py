"""TLS of connections: the files of contexts, and what a failed handshake says."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from kafka_clients.channel_security import ChannelSecurity
from kafka_clients.refusals import SecurityRefused
from kafka_clients.security import KafkaSecurity, TlsFiles
from kafka_clients.tls_context import make_tls_context
from kafka_protocol.apis import DESCRIBE_CLUSTER
from kip405.addresses import Address
from kip405.errors import Invalid, Unavailable
from kip405.settings import Secret
from rlm.broker.connection import BrokerConnection
from tests.builders.certificates import Authority, Certificate
from tests.builders.fake_broker import FakeBroker


class Site:
    """A broker behind TLS; `server` may be exchanged between connections."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.folder = folder
        self.broker = FakeBroker()
        self.broker.on(DESCRIBE_CLUSTER, {"cluster_id": "c"})
        self.address = Address(host="127.0.0.1", port=0)
        self.tls = TlsFiles(ca_file=str(self.authority.ca_file))

    def serve(self, pair: Certificate, *, clients: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
        context.load_cert_chain(pair.cert_file, pair.key_file)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    @asynccontextmanager
    async def behind(self, context: ssl.SSLContext) -> AsyncIterator[None]:
        async with self.broker.running():
            server = await asyncio.start_server(self.broker._serve, "127.0.0.1", 0, ssl=context)
            self.address = replace(self.address, port=server.sockets[0].getsockname()[1])
            try:
                yield
            finally:
                self.broker.drop_connections()
                server.close()

    async def ask(self, tls: TlsFiles | None = None) -> None:
        security = ChannelSecurity(KafkaSecurity(protocol="SSL", tls=tls or self.tls))
        connection = BrokerConnection(self.address, client_id="test", security=security)
        try:
            await connection.call(DESCRIBE_CLUSTER, 0, {}, timeout_ms=60_000)
        finally:
            await connection.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_certificate_of_the_authority(site: Site) -> None:
    async with site.behind(site.serve(site.authority.issue("127.0.0.1"))):
        await site.ask()


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ({"is_expired": True}, "has expired: renew it there"),
        ({"name": "other.example"}, r"does not have the host that was dialled.*identification"),
    ],
)
async def test_a_certificate_that_is_refused(
    site: Site, pair: dict[str, object], message: str
) -> None:
    given = {"name": "127.0.0.1", **pair}
    server = site.authority.issue(**given)  # type: ignore[arg-type] # as the parameters say
    async with site.behind(site.serve(server)):
        with pytest.raises(SecurityRefused, match=message) as refused:
            await site.ask()
    assert f"broker {site.address}: " in str(refused.value)


async def test_another_authority(site: Site, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    async with site.behind(site.serve(other.issue("127.0.0.1"))):
        with pytest.raises(
            SecurityRefused, match=r"look at kafka\.ssl\.truststore\.location"
        ) as no:
            await site.ask()
        assert str(site.authority.ca_file) in str(no.value)
        with pytest.raises(SecurityRefused, match="the system's authorities"):
            await site.ask(TlsFiles())


@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_client_shows_the_certificate_of_its_files_as_they_are(
    site: Site, tmp_path: Path, is_expired: bool
) -> None:
    clients = Authority(tmp_path, "clients")
    context = site.serve(site.authority.issue("127.0.0.1"), clients=clients.ca_file)
    chain = tmp_path / "chain.pem"
    tls = replace(site.tls, cert_file=str(chain))
    async with site.behind(context):
        chain.write_text(Authority(tmp_path, "nobody").issue("x").both_file.read_text())
        with pytest.raises(Unavailable, match=r"kafka\.ssl\.keystore\.location"):
            await site.ask(tls)
        renewed = clients.issue("client", is_expired=is_expired).both_file
        chain.write_text(renewed.read_text())
        if is_expired:
            with pytest.raises(Unavailable, match=r"kafka\.ssl\.keystore\.location"):
                await site.ask(tls)
        else:
            await site.ask(tls)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ca_file": "missing"}, r"truststore\.location: .*missing cannot be used: No such file"),
        ({"ca_file": "store.jks"}, r"truststore\.location: .*store\.jks cannot be used: "),
        ({"cert_file": "missing"}, r"keystore\.location: .*missing cannot be used as certificate"),
        ({"cert_file": "store.jks"}, r"keystore\.location: .*store\.jks cannot be used as"),
        ({"cert_file": "ca.pem", "key_file": "missing"}, r"ca\.pem and .*missing cannot be used"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (tmp_path / "ca.pem").write_text(Authority(tmp_path).ca_file.read_text())
    with pytest.raises(Invalid, match=message):
        make_tls_context(TlsFiles(**{name: str(tmp_path / one) for name, one in files.items()}))  # type: ignore[arg-type] # names of fields


def test_a_pem_that_cannot_be_used_ends_no_service(tmp_path: Path) -> None:
    tls = TlsFiles(ca_file=str(tmp_path / "missing"))
    with pytest.raises(SecurityRefused, match=r"truststore\.location"):
        ChannelSecurity(KafkaSecurity(protocol="SSL", tls=tls)).tls_context()


def test_the_password_of_a_key(tmp_path: Path) -> None:
    chain, shown = tmp_path / "chain.pem", Authority(tmp_path).issue("client")
    key = serialization.load_pem_private_key(shown.key_file.read_bytes(), password=None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open"),
    )
    chain.write_bytes(locked + shown.cert_file.read_bytes())
    right = TlsFiles(cert_file=str(chain), key_password=Secret("open"))
    make_tls_context(right)
    password = tmp_path / "password"
    password.write_text("open\n")
    make_tls_context(replace(right, key_password=password))
    for wrong in (replace(right, key_password=Secret("shut")), replace(right, key_password=None)):
        with pytest.raises(Invalid, match=r"is wrong or missing .kafka\.ssl\.key\.password") as no:
            make_tls_context(wrong)
        assert "shut" not in str(no.value)


@pytest.mark.parametrize("hangs", [False, True], ids=["answers", "hangs"])
async def test_no_socket_outlives_a_connection_that_is_closed(
    site: Site, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS says farewell first, and waits for that of the broker."""
    async with site.behind(site.serve(site.authority.issue("127.0.0.1"))):
        security = ChannelSecurity(KafkaSecurity(protocol="SSL", tls=site.tls))
        connection = BrokerConnection(site.address, client_id="test", security=security)
        await connection.call(DESCRIBE_CLUSTER, 0, {}, timeout_ms=60_000)
        assert connection._channel is not None
        socket = connection._channel._writer.get_extra_info("socket")
        if hangs:
            site.broker.stop_reading()
            monkeypatch.setattr("rlm.broker.connection._GRACE_S", 0.01)
        assert socket.fileno() >= 0
        await connection.close()
        assert socket.fileno() < 0
