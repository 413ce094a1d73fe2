"""What `--security` makes of a sandbox, without Kafka: settings, files, certificates, tokens."""

import base64
import json
import re
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from rlm.config.loader import from_mapping, reader_from_mapping
from rlm_sandbox.document import sandbox_document, without_passwords
from rlm_sandbox.kafka_dist import KafkaDist
from rlm_sandbox.nodes import broker_properties, controller_properties
from rlm_sandbox.security.acls import FIXTURE
from rlm_sandbox.security.certificates import Authority
from rlm_sandbox.security.cluster_security import (
    ClusterSecurity,
    prepare_security,
    security_of,
)
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.listeners import protocols
from rlm_sandbox.security.oauth import signed_token
from rlm_sandbox.security.principals import CLIENTS, PRINCIPAL_MAPPING_RULES, PRINCIPALS
from rlm_sandbox.services import reader_config, rlm_config
from rlm_sandbox.spec import SECURITY, Layout, SandboxError, SandboxSpec
from rlm_sandbox.state import SandboxState
from tests.sandbox.test_plans import LAYOUT, PORTS, state

SECURED = [kind for kind in SECURITY if kind != "plaintext"]
NOW_MS = 1_800_000_000_000


def spec_of(kind: str, **options: Any) -> SandboxSpec:
    return SandboxSpec(security=kind, services=False, **options)


def prepared(root: Path, kind: str) -> ClusterSecurity:
    layout = Layout(root=root)
    prepare_security(layout, spec_of(kind), now_ms=NOW_MS)
    found = security_of(layout, spec_of(kind))
    assert found is not None
    return found


def protocols_of(properties: dict[str, str]) -> dict[str, str]:
    rows = properties["listener.security.protocol.map"].split(",")
    return dict(row.split(":") for row in rows)


@pytest.mark.parametrize("kind", SECURED)
def test_no_listener_of_a_secured_sandbox_takes_clients_without_identity(
    tmp_path: Path, kind: str
) -> None:
    security = prepared(tmp_path, kind)
    properties = broker_properties(spec_of(kind), LAYOUT, 1, PORTS, 99, security)
    by_listener = protocols_of(properties)
    assert set(by_listener) == {"DIRECT", "TIERED", "CONTROLLER"}
    assert "PLAINTEXT" not in by_listener.values()
    for listener, protocol in by_listener.items():
        assert protocol != "SSL" or properties["ssl.client.auth"] == "required"
        assert protocol.endswith("SSL") == (kind != "sasl_plaintext")
        key = f"listener.name.{listener.lower()}.sasl.enabled.mechanisms"
        assert (key in properties) == protocol.startswith("SASL_")
    assert (properties.get("listener.name.tiered.ssl.client.auth") == "required") == (
        kind == "mtls"
    )
    three = spec_of(kind, brokers=3)
    controller = controller_properties(three, LAYOUT, 99, security)
    for key in ("authorizer.class.name", "allow.everyone.if.no.acl.found", "super.users"):
        assert controller[key] == properties[key]
    assert properties["allow.everyone.if.no.acl.found"] == "false"
    assert properties["super.users"] == "User:broker;User:admin"
    assert properties["delegation.token.secret.key"] == security.secrets.delegation_token_key


def test_plaintext_is_as_it_was(tmp_path: Path) -> None:
    layout, spec = Layout(root=tmp_path), SandboxSpec()
    prepare_security(layout, spec, now_ms=NOW_MS)
    assert security_of(layout, spec) is None
    assert not list(tmp_path.iterdir())
    properties = broker_properties(spec, LAYOUT, 1, PORTS, 99)
    assert set(protocols_of(properties).values()) == {"PLAINTEXT"}
    assert not [key for key in properties if "ssl" in key or "sasl" in key or "author" in key]
    assert "security" not in sandbox_document(LAYOUT, state(spec))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"security": "kerberos"}, "allowed are plaintext, sasl_plaintext, sasl_ssl, mtls"),
        ({"mode": "zookeeper", "kafka_version": "3.9.2"}, "not with --mode zookeeper"),
        ({"native_tiering": True}, "not with --native-tiering"),
        ({"kafka_version": "3.5.2"}, "give --kafka-version 3.6.2 or newer"),
        ({"brokers": 3, "kafka_version": "4.3.0,3.3.2,3.9.2"}, "Kafka 3.3.2 has no delegation"),
    ],
)
def test_what_cannot_be_secured_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SandboxError, match=reason):
        SandboxSpec(**{"security": "sasl_ssl", "services": False, **options})
    SandboxSpec(security="sasl_ssl", services=False, kafka_version="3.6.2")


@pytest.mark.parametrize("name", ["with space", "é", "a%b"])
def test_a_path_that_kafka_does_not_decode_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SandboxError, match="a path without spaces and special characters"):
        prepared(tmp_path / name, "sasl_ssl")


def test_a_sandbox_of_before_there_was_security_is_still_known() -> None:
    content = state(SandboxSpec()).to_json()
    del content["spec"]["security"]
    assert SandboxState.from_json(content) == state(SandboxSpec())
    secured = replace(state(SandboxSpec()), spec=spec_of("mtls"))
    assert SandboxState.from_json(secured.to_json()) == secured


@pytest.mark.parametrize("kind", SECURED)
def test_only_the_owner_can_read_what_is_secret(tmp_path: Path, kind: str) -> None:
    security = prepared(tmp_path, kind)
    assert stat.S_IMODE(security.files.folder.stat().st_mode) == 0o700
    secrets = [*security.secrets.passwords.values(), security.secrets.delegation_token_key]
    for path in security.files.folder.iterdir():
        text = path.read_text("utf-8")
        if path.suffix == ".jwt" or "PRIVATE KEY" in text or any(one in text for one in secrets):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert not any(secret in repr(security) for secret in secrets)
    assert not any(secret in repr(security.admin) for secret in secrets)


def test_a_sandbox_that_comes_up_again_has_the_same_secrets(tmp_path: Path) -> None:
    files = prepared(tmp_path, "mtls").files
    before = {path: path.read_bytes() for path in files.folder.iterdir()}
    prepared(tmp_path, "mtls")
    assert {path: path.read_bytes() for path in files.folder.iterdir()} == before
    files.secrets.write_text("{}")
    with pytest.raises(SandboxError, match=r"secrets\.json cannot be read"):
        security_of(Layout(root=tmp_path), spec_of("mtls"))


def test_certificates_are_signed_and_name_their_principal(tmp_path: Path) -> None:
    files = prepared(tmp_path, "mtls").files
    authority = x509.load_pem_x509_certificate(files.ca.read_bytes())
    pattern = re.compile(PRINCIPAL_MAPPING_RULES.removeprefix("RULE:").partition("/")[0])
    for name in PRINCIPALS:
        found = x509.load_pem_x509_certificate(files.certificate(name).read_bytes())
        found.verify_directly_issued_by(authority)
        matched = pattern.match(found.subject.rfc4514_string())
        assert matched is not None
        assert matched[1] == name
        assert files.keystore(name).read_text() == (
            files.key(name).read_text() + files.certificate(name).read_text()
        )
    broker = x509.load_pem_x509_certificate(files.certificate("broker").read_bytes())
    names = broker.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    proxy = x509.load_pem_x509_certificate(files.certificate("rlm").read_bytes())
    assert proxy.extensions.get_extension_for_class(x509.SubjectAlternativeName).value == names
    client = x509.load_pem_x509_certificate(files.certificate("reader").read_bytes())
    with pytest.raises(x509.ExtensionNotFound):
        client.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_the_authority_issues_certificates_that_have_expired(tmp_path: Path) -> None:
    authority = Authority.load(prepared(tmp_path, "mtls").files)
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    issued = authority.issue("reader", begin=now - timedelta(days=2), end=now - timedelta(days=1))
    found = x509.load_pem_x509_certificate(issued.certificate.encode())
    assert found.not_valid_after_utc < now


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def verified(files: SecurityFiles, token: str) -> dict[str, Any]:
    """The claims of a token, by the key set that brokers have."""
    head, claims, signature = token.split(".")
    [key] = json.loads(files.jwks.read_text())["keys"]
    assert json.loads(decoded(head))["kid"] == key["kid"]
    numbers = (int.from_bytes(decoded(key[name]), "big") for name in ("e", "n"))
    public = rsa.RSAPublicNumbers(*numbers).public_key()
    public.verify(
        decoded(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    content: dict[str, Any] = json.loads(decoded(claims))
    return content


def test_tokens_are_signed_and_expire(tmp_path: Path) -> None:
    files = prepared(tmp_path, "sasl_ssl").files
    for name in CLIENTS:
        claims = verified(files, files.token(name).read_text())
        assert claims["sub"] == name
        assert claims["iat"] * 1000 <= NOW_MS < claims["exp"] * 1000
    expired = signed_token(files, "admin", now_ms=NOW_MS, lifetime_ms=-60_000)
    claims = verified(files, expired)
    assert claims["iat"] < claims["exp"] < NOW_MS // 1000


@pytest.mark.parametrize("kind", SECURED)
def test_services_and_readers_are_one_principal_and_have_no_password_in_their_settings(
    tmp_path: Path, kind: str
) -> None:
    security = prepared(tmp_path, kind)
    plan = state(SandboxSpec(security=kind, readers=1))
    service = rlm_config(plan.spec, LAYOUT, 1, plan.ports, "c", security)
    del service["broker.server.properties"]  # not written in this test
    reader = reader_config(LAYOUT, plan, 1, security)
    for content, config in (
        (service, from_mapping(service)),
        (reader, reader_from_mapping(reader)),
    ):
        assert config.kafka_security_protocol == protocols(kind).direct
        assert config.kafka_sasl_username == (None if kind == "mtls" else "rlm")
        assert not [one for one in security.secrets.passwords.values() if one in str(content)]
        tls = config.kafka_security().tls
        assert tls.ca_file == (None if kind == "sasl_plaintext" else str(security.files.ca))
        keystore = str(security.files.keystore("rlm"))
        assert tls.cert_file == (keystore if kind == "mtls" else None)
    config = from_mapping(service)
    assert config.serves_tls == config.dials_tls == (kind != "sasl_plaintext")
    assert config.proxy_tls_client_auth == ("required" if kind == "mtls" else "none")
    assert not [key for key in rlm_config(plan.spec, LAYOUT, 1, plan.ports, "c") if "sasl" in key]


@pytest.mark.parametrize("kind", SECURED)
def test_the_document_has_all_that_a_client_needs(tmp_path: Path, kind: str) -> None:
    security = prepared(tmp_path, kind)
    document = sandbox_document(LAYOUT, replace(state(spec_of(kind))), security)
    part = document["security"]
    expected = {"sasl_plaintext": "SASL_PLAINTEXT", "sasl_ssl": "SASL_SSL", "mtls": "SSL"}
    assert part["protocol"] == expected[kind]
    assert part["mechanism"] == (None if kind == "mtls" else "SCRAM-SHA-512")
    assert part["ca"] == (None if kind == "sasl_plaintext" else str(security.files.ca))
    for name in ("admin", "denied", "reader"):
        assert part[name]["username"] == name
        assert part[name]["password"] == security.secrets.passwords[name]
        assert ("certificate" in part[name]) == ("key" in part[name]) == (kind == "mtls")
    shown = json.dumps(without_passwords(document))
    assert not any(password in shown for password in security.secrets.passwords.values())
    assert json.loads(shown)["security"]["reader"]["username"] == "reader"


def test_denied_has_no_right_and_reader_cannot_change_anything() -> None:
    assert not [one for one in FIXTURE if one.principal == "User:denied"]
    operations = {one.operation for one in FIXTURE if one.principal == "User:reader"}
    assert operations == {"Read", "Describe"}


def test_secrets_of_a_tool_are_in_a_file_of_its_owner_and_on_no_command_line(
    tmp_path: Path,
) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\necho "$@"\nstat -c %a "${1#@}"\ncat "${1#@}"\n')
    java.chmod(0o755)
    arguments = tmp_path / "a b"
    dist = KafkaDist(version="4.3.0", jars=(), java=java, cache=tmp_path)
    done = dist.run_tool("storage", 'word"\\ x', "[password=y]", argument_file=arguments)
    command, mode, *words = done.stdout.splitlines()
    assert command == f"@{arguments}"
    assert mode == "600"
    assert words[-3:] == ['"kafka.tools.StorageTool"', '"word\\"\\\\ x"', '"[password=y]"']
    assert not arguments.exists()
