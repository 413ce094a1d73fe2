"""Settings of TLS and quotas: what goes together, what must be there beyond loopback."""

from pathlib import Path
from typing import Any

import pytest

from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.contract.tls import Tls
from tests.rlm.config.test_config import given, read, refusal

__all__ = ["given"]
PAIR = {"grpc.tls.cert.file": "/tls/cert.pem", "grpc.tls.key.file": "/tls/key.pem"}
OPEN = {"grpc.listen": "10.0.0.1:9095"}


def test_without_them_there_is_no_tls(tmp_path: Path, given: dict[str, Any]) -> None:
    config = read(tmp_path, given)
    assert (config.grpc_tls, config.peer_tls) == (None, None)


def test_the_api_and_its_peers_get_their_files(tmp_path: Path, given: dict[str, Any]) -> None:
    more = {
        "grpc.tls.client.ca.file": "/tls/clients.pem",
        "grpc.tls.ca.file": "/tls/peers.pem",
        "grpc.tls.server.name": "rlm.example",
    }
    config = read(tmp_path, given | PAIR | more)
    cert, key = Path("/tls/cert.pem"), Path("/tls/key.pem")
    assert config.grpc_tls == ServerTls(
        cert_file=cert, key_file=key, client_ca_file=Path("/tls/clients.pem")
    )
    assert config.peer_tls == Tls(
        ca_file=Path("/tls/peers.pem"), cert_file=cert, key_file=key, server_name="rlm.example"
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"grpc.tls.cert.file": "/c"}, "grpc.tls.cert.file is given without grpc.tls.key.file"),
        ({"grpc.tls.key.file": "/k"}, "grpc.tls.key.file is given without grpc.tls.cert.file"),
        ({"grpc.tls.ca.file": "/a"}, "grpc.tls.ca.file: goes with grpc.tls.cert.file"),
        ({"grpc.tls.client.ca.file": "/a"}, "grpc.tls.client.ca.file: goes with"),
        ({"grpc.tls.server.name": "x"}, "grpc.tls.server.name: goes with"),
        (OPEN, "grpc.listen: 10.0.0.1:9095 is not loopback and has no TLS"),
        (OPEN | {"api.token.file": "/t"}, "grpc.listen: 10.0.0.1:9095 is not loopback and has no"),
        (OPEN | PAIR, "grpc.listen: 10.0.0.1:9095 is not loopback and everybody could call"),
        ({"remote.fetch.cpu.max.cores": 0}, "remote.fetch.cpu.max.cores: must be a number of"),
        ({"remote.fetch.cpu.max.cores": "2"}, "remote.fetch.cpu.max.cores: must be a number of"),
        ({"remote.fetch.cpu.max.cores": True}, "remote.fetch.cpu.max.cores: must be a number of"),
        (
            {"remote.fetch.client.max.bytes.per.second": 1},
            "remote.fetch.client.max.bytes.per.second: must be a whole number of at least 1048576",
        ),
    ],
)
def test_what_is_refused(
    tmp_path: Path, given: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    assert refusal(tmp_path, given | more).startswith(why)


@pytest.mark.parametrize(
    "more",
    [
        PAIR | {"api.token.file": "/t", "grpc.tls.ca.file": "/p"},
        PAIR | {"grpc.tls.client.ca.file": "/a"},
        {"allow_insecure": True},
    ],
)
def test_with_tls_and_somebody_it_knows_the_api_may_be_open(
    tmp_path: Path, given: dict[str, Any], more: dict[str, Any]
) -> None:
    assert str(read(tmp_path, given | OPEN | more).grpc_listen) == "10.0.0.1:9095"


def test_quotas_are_on_by_default(tmp_path: Path, given: dict[str, Any]) -> None:
    config = read(tmp_path, given)
    assert config.remote_log_manager_fetch_max_bytes_per_second == 1 << 30
    assert config.remote_fetch_client_max_bytes_per_second == 512 << 20
    assert config.remote_fetch_cpu_max_cores == 2.0
    half = read(tmp_path, given | {"remote.fetch.cpu.max.cores": 0.5})
    assert half.remote_fetch_cpu_max_cores == 0.5
