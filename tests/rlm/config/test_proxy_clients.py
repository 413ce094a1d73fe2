"""Settings of the proxy's connections: what goes together, and what the proxy gets of them."""

from pathlib import Path
from typing import Any

import pytest

from rlm.proxy.tls_files import ListenerTls, ProxyTls, UpstreamTls
from rlm.service.clients import proxy_settings, proxy_tls
from rlm.service.read_path import build_throttle
from rlm.service.supervised import worker_settings
from rlm.workers.worker import WorkerSettings
from tests.builders.clock import ManualClock
from tests.rlm.config.test_config import given, read, refusal

__all__ = ["given"]
LISTENER = {"proxy.tls.cert.file": "/tls/cert.pem", "proxy.tls.key.file": "/tls/key.pem"}
UPSTREAM = {"broker.tiered.tls.ca.file": "/tls/brokers.pem"}


def test_without_them_the_proxy_is_plain(tmp_path: Path, given: dict[str, Any]) -> None:
    config = read(tmp_path, given)
    assert proxy_tls(config) == ProxyTls()
    assert not config.serves_tls and not config.dials_tls


def test_the_proxy_and_its_workers_get_them(tmp_path: Path, given: dict[str, Any]) -> None:
    more = {
        "proxy.tls.key.password.file": "/tls/password",
        "proxy.tls.client.ca.file": "/tls/clients.pem",
        "proxy.tls.client.auth": "requested",
        "proxy.tls.min.version": "TLSv1.3",
        "proxy.tls.ciphers": "ECDHE+AESGCM",
        "proxy.handshake.timeout.ms": 1_234,
        "broker.tiered.tls.cert.file": "/tls/proxy.pem",
        "broker.tiered.tls.key.file": "/tls/proxy.key",
        "broker.tiered.tls.key.password.file": "/tls/other",
        "broker.tiered.tls.server.name": "broker-3",
    }
    config = read(tmp_path, given | LISTENER | UPSTREAM | more)
    tls = proxy_tls(config)
    assert tls.listener == ListenerTls(
        cert_file="/tls/cert.pem",
        key_file="/tls/key.pem",
        key_password_file="/tls/password",
        client_ca_file="/tls/clients.pem",
        client_auth="requested",
        min_version="TLSv1.3",
        ciphers="ECDHE+AESGCM",
    )
    assert tls.upstream == UpstreamTls(
        ca_file="/tls/brokers.pem",
        cert_file="/tls/proxy.pem",
        key_file="/tls/proxy.key",
        key_password_file="/tls/other",
        server_name="broker-3",
        checks_name=True,
    )
    assert proxy_settings(config).handshake_timeout_ms == 1_234
    worker = worker_settings(config, 0, 2)
    assert WorkerSettings.of(worker.line()) == worker
    assert worker.tls == tls


def test_limits_reach_the_proxy_and_each_worker_has_its_share(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    more = {
        "proxy.max.connections.per.address": 30,
        "proxy.max.connections.per.principal": 20,
        "proxy.sasl.oauthbearer.sub.claim.name": "azp",
        "proxy.stalled.request.min.bytes": 17,
        "remote.fetch.principal.max.bytes.per.second": 2_000_000,
    }
    config = read(tmp_path, given | more)
    one = proxy_settings(config)
    assert (one.max_connections_per_address, one.max_connections_per_principal) == (30, 20)
    assert one.stalled_request_min_bytes == 17
    shares = [worker_settings(config, number, 2).proxy for number in range(2)]
    assert {share.sasl_oauthbearer_sub_claim_name for share in (one, *shares)} == {"azp"}
    assert [share.max_connections_per_address for share in shares] == [15, 15]
    assert [share.max_connections_per_principal for share in shares] == [10, 10]
    throttle = build_throttle(config, ManualClock())
    assert throttle.limits.principal_bytes_per_second == 2_000_000


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"proxy.tls.cert.file": "/c"}, "proxy.tls.cert.file: is given without proxy.tls.key.file"),
        ({"proxy.tls.key.file": "/k"}, "proxy.tls.key.file: is given without proxy.tls.cert.file"),
        ({"proxy.tls.ciphers": "ALL"}, "proxy.tls.ciphers: is given without proxy.tls.cert.file"),
        (
            {"proxy.tls.client.auth": "required"},
            "proxy.tls.client.auth: is given without proxy.tls.cert.file",
        ),
        (
            LISTENER | {"proxy.tls.client.auth": "required"},
            "proxy.tls.client.auth: required needs proxy.tls.client.ca.file",
        ),
        (
            LISTENER | {"proxy.tls.client.ca.file": "/a"},
            "proxy.tls.client.ca.file: goes with proxy.tls.client.auth requested or required",
        ),
        (
            LISTENER | {"proxy.tls.min.version": "TLSv1.1"},
            "proxy.tls.min.version: must be TLSv1.2 or TLSv1.3",
        ),
        (
            LISTENER | {"proxy.handshake.timeout.ms": 0},
            "proxy.handshake.timeout.ms: must be a whole number of at least 1",
        ),
        (
            {"broker.tiered.tls.check.name": False},
            "broker.tiered.tls.check.name: is given without broker.tiered.tls.ca.file",
        ),
        (
            UPSTREAM | {"broker.tiered.tls.key.file": "/k"},
            "broker.tiered.tls.key.file: is given without broker.tiered.tls.cert.file",
        ),
        (
            UPSTREAM | {"broker.tiered.tls.key.password.file": "/p"},
            "broker.tiered.tls.key.password.file: is given without broker.tiered.tls.key.file",
        ),
        (
            UPSTREAM
            | {"broker.tiered.tls.server.name": "b", "broker.tiered.tls.check.name": False},
            "broker.tiered.tls.server.name: goes with broker.tiered.tls.check.name true",
        ),
    ],
)
def test_what_is_refused(
    tmp_path: Path, given: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    assert refusal(tmp_path, given | more).startswith(why)


TOKENS = {
    **LISTENER,
    "proxy.tls.client.ca.file": "/tls/clients.pem",
    "proxy.tls.client.auth": "required",
    "proxy.tls.client.identity": "delegation-token",
    "kafka.security.protocol": "SSL",
    "kafka.ssl.keystore.location": "/tls/rlm.pem",
}


def test_certificates_are_an_identity_where_it_is_said(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    assert not read(tmp_path, given).has_client_tokens
    assert worker_settings(read(tmp_path, given), 0, 2).token_mechanism == ""
    config = read(tmp_path, given | TOKENS)
    assert config.has_client_tokens
    assert config.proxy_token_sasl_mechanism == "SCRAM-SHA-512"
    assert worker_settings(config, 0, 2).token_mechanism == "SCRAM-SHA-512"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"proxy.tls.client.auth": None, "proxy.tls.client.ca.file": None}, "client.auth"),
        (
            {"kafka.security.protocol": None, "kafka.ssl.keystore.location": None},
            "kafka.security.protocol with SASL",
        ),
        ({"kafka.ssl.keystore.location": None}, "kafka.ssl.keystore.location"),
        ({"proxy.token.max.lifetime.ms": 9_999}, "proxy.token.max.lifetime.ms"),
        ({"proxy.token.sasl.mechanism": "PLAIN"}, "SCRAM-SHA-256"),
    ],
)
def test_what_tokens_of_clients_need(
    tmp_path: Path, given: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    assert words in refusal(tmp_path, given | TOKENS | changes)
