"""Settings of rights at the API, of HTTP's TLS and tokens: what goes together."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kip405.errors import Invalid
from rlm.config import load_reader
from tests.rlm.config.test_config import given, read, refusal

__all__ = ["given"]
TOKEN = {"api.token.file": "/t"}
FILE = {"api.principals.file": "/p"}
PAIR = {"grpc.tls.cert.file": "/c", "grpc.tls.key.file": "/k"}
PEERS = PAIR | {"grpc.tls.ca.file": "/a"}
OPEN = {"http.listen": "10.0.0.1:9096"}
HTTP_PAIR = {"http.tls.cert.file": "/c", "http.tls.key.file": "/k"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "none"),
        (TOKEN, "none"),
        (TOKEN | FILE, "file"),
        (TOKEN | FILE | {"api.authorization": "file"}, "file"),
        (TOKEN | FILE | {"api.authorization": "kafka"}, "kafka"),
        (
            TOKEN | PEERS | {"grpc.tls.client.ca.file": "/a", "api.authorization": "kafka"},
            "kafka",
        ),
    ],
)
def test_who_decides(
    tmp_path: Path, given: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    assert read(tmp_path, given | more).authorization == expected


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (FILE, "api.token.file: missing; api.authorization is file, and services know each other"),
        (FILE | {"api.authorization": "kafka"}, "api.token.file: missing; api.authorization is k"),
        (FILE | TOKEN | {"api.authorization": "none"}, "api.principals.file: goes with"),
        (TOKEN | {"api.authorization": "file"}, "api.principals.file: missing"),
        (TOKEN | {"api.authorization": "kafka"}, "api.authorization: kafka, but no caller has a"),
        ({"api.authorization": "acl"}, "api.authorization: must be none or file or kafka"),
        (PAIR | TOKEN, "grpc.tls.ca.file: missing; the service sends the token of api.token.file"),
        ({"ssl.principal.mapping.rules": "default"}, "ssl.principal.mapping.rules: 'default' is"),
        ({"http.tls.cert.file": "/c"}, "http.tls.cert.file is given without http.tls.key.file"),
        ({"http.tls.key.file": "/k"}, "http.tls.key.file is given without http.tls.cert.file"),
        (OPEN, "http.listen: 10.0.0.1:9096 is not loopback and has no TLS; give http.tls.cert"),
        (OPEN | {"http.token.file": "/t"}, "http.listen: 10.0.0.1:9096 is not loopback and has no"),
        (OPEN | HTTP_PAIR, "http.listen: 10.0.0.1:9096 is not loopback and everybody could read"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, given: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    assert refusal(tmp_path, given | more).startswith(why)


@pytest.mark.parametrize(
    "more",
    [
        OPEN | HTTP_PAIR | {"http.token.file": "/t"},
        OPEN | {"allow_insecure": True},
        PEERS | TOKEN,
    ],
)
def test_what_is_taken(tmp_path: Path, given: dict[str, Any], more: dict[str, Any]) -> None:
    read(tmp_path, given | more)


def test_a_reader_calls_no_peers_and_has_rights_too(tmp_path: Path) -> None:
    path = tmp_path / "reader.yaml"
    least = {
        "cluster.id": "c1",
        "state.dir": str(tmp_path / "state"),
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "grpc.listen": "127.0.0.1:9095",
        "http.listen": "127.0.0.1:9096",
        "plugin.address": "unix:/run/rsm.sock",
    }
    path.write_text(yaml.safe_dump(least | TOKEN | PAIR))
    assert load_reader(path).authorization == "none"
    path.write_text(yaml.safe_dump(least | FILE))
    with pytest.raises(Invalid, match=r"api\.token\.file: missing"):
        load_reader(path)
