"""`rlm probe`: what each check asks, and that it says why something does not work."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from kafka_protocol.apis import API_VERSIONS
from rlm.service.listeners import HealthState, HttpServer
from rlm_sandbox.ports import PortReservation
from tests.builders.certificates import Authority
from tests.builders.fake_broker import FakeBroker
from tests.rlm.cli.invoking import assert_one_line, rlm
from tests.waiting import until


@dataclass(kw_only=True)
class Site:
    """The listeners of a service, each of which a test may leave out, and its file."""

    folder: Path
    broker: FakeBroker = field(default_factory=FakeBroker)
    alive: bool = True
    ready: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def http(self) -> AsyncIterator[None]:
        server = HttpServer(
            host="127.0.0.1",
            port=0,
            health=lambda: HealthState(alive=self.alive, ready=self.ready, problems=()),
            metrics=lambda: b"",
        )
        self.settings["http.listen"] = f"127.0.0.1:{await server.start()}"
        try:
            yield
        finally:
            await server.stop()

    @contextlib.asynccontextmanager
    async def proxy(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        async with self.broker.running(tls) as running:
            self.settings["proxy.listen"] = f"0.0.0.0:{running.address.port}"
            yield

    async def asked(self, check: str, *more: str) -> Result:
        path = self.folder / "rlm.yaml"
        path.write_text(yaml.safe_dump(self.settings), encoding="utf-8")
        return await rlm("probe", check, "--config", str(path), *more)


@pytest.fixture
def free_port() -> Iterator[int]:
    with PortReservation() as ports:
        port = ports.take()
        ports.lend_all()
        yield port


@pytest.fixture
def site(tmp_path: Path, free_port: int) -> Site:
    """With addresses at which nobody listens."""
    nobody = f"127.0.0.1:{free_port}"
    settings = {
        "node.id": 3,
        "cluster.id": "c1",
        "log.dirs": [str(tmp_path / "logs")],
        "state.dir": str(tmp_path / "state"),
        "broker.direct.address": "127.0.0.1:19092",
        "broker.tiered.address": "127.0.0.1:19093",
        "proxy.listen": nobody,
        "proxy.advertised": "127.0.0.1:9092",
        "grpc.listen": "127.0.0.1:9095",
        "http.listen": nobody,
    }
    return Site(folder=tmp_path, settings=settings)


async def test_startup_and_readiness_ask_the_proxy_and_liveness_the_loop(site: Site) -> None:
    async with site.proxy():
        for check in ("startup", "readiness"):
            assert (await site.asked(check)).exit_code == 0
        await until(lambda: site.broker.connections == 2)
        assert len(site.broker.asked(API_VERSIONS)) == 1
        assert_one_line(await site.asked("liveness"), "/healthz", "refused", status=1)
    async with site.http():
        assert (await site.asked("liveness")).exit_code == 0
        site.ready = False  # ledger or store are away: no reason to restart
        assert (await site.asked("liveness")).exit_code == 0
        site.alive = False
        assert_one_line(await site.asked("liveness"), "status 503", status=1)


async def test_a_proxy_that_does_not_listen_is_neither_started_nor_ready(site: Site) -> None:
    for check in ("startup", "readiness"):
        assert_one_line(await site.asked(check), site.settings["proxy.listen"], status=1)


async def test_g6_a_proxy_whose_broker_is_gone_listens_and_is_not_ready(site: Site) -> None:
    del site.broker.handlers[API_VERSIONS.key]  # closes the connection, as the proxy does then
    async with site.proxy():
        assert (await site.asked("startup")).exit_code == 0
        assert_one_line(await site.asked("readiness"), "ApiVersions", "closed", status=1)
        await until(lambda: site.broker.connections == 2)


async def test_a_broker_that_never_answers_costs_the_timeout_and_no_more(site: Site) -> None:
    site.broker.on(API_VERSIONS, lambda _: None)
    async with site.proxy():
        assert_one_line(await site.asked("readiness", "--timeout", "0.2"), "timed out", status=1)


async def test_what_is_not_kafka_is_not_ready(site: Site) -> None:
    async with site.http():
        site.settings["proxy.listen"] = site.settings["http.listen"]
        assert_one_line(await site.asked("readiness"), "not Kafka's protocol", status=1)


@pytest.mark.parametrize("client_auth", ["none", "required"])
async def test_a_proxy_with_tls_is_asked_with_tls_or_only_whether_it_listens(
    site: Site, client_auth: str
) -> None:
    authority = Authority(site.folder, "of-the-proxy")
    shown = authority.issue("proxy", "127.0.0.1")
    site.settings |= {
        "proxy.tls.cert.file": str(shown.cert_file),
        "proxy.tls.key.file": str(shown.key_file),
        "proxy.tls.client.auth": client_auth,
    }
    if client_auth == "required":
        site.settings["proxy.tls.client.ca.file"] = str(authority.ca_file)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(shown.cert_file, shown.key_file)
    # Where clients need certificates it only connects, which is no handshake to be left half done.
    async with site.proxy(context if client_auth == "none" else None):
        assert (await site.asked("readiness")).exit_code == 0
        await until(lambda: site.broker.connections == 1)
    assert len(site.broker.asked(API_VERSIONS)) == (client_auth == "none")


async def test_a_reader_is_ready_when_it_says_so(site: Site) -> None:
    kept = ("cluster.id", "state.dir", "grpc.listen", "http.listen")
    site.settings = {key: site.settings[key] for key in kept} | {
        "kafka.bootstrap.servers": ["127.0.0.1:19092"],
        "plugin.address": "127.0.0.1:9097",
    }
    async with site.http():
        site.ready = False
        reader = ("--role", "reader")
        for check in ("startup", "liveness"):
            assert (await site.asked(check, *reader)).exit_code == 0
        assert_one_line(await site.asked("readiness", *reader), "/readyz", "503", status=1)
        site.ready = True
        assert (await site.asked("readiness", *reader)).exit_code == 0
