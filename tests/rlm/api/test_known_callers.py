"""Who a caller is where the API is authorised: by token, certificate, or the services' token."""

from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from kafka_clients.principal_mapping import PrincipalMapping
from kip405.errors import Unavailable
from rlm.api.call_metadata import call_metadata
from rlm.api.calls import Gate, no_tokens
from rlm.api.peers import Stubs
from rlm.api.principals import Principals, principals_of, token_hash
from rlm.v1 import admin_pb2 as pb
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rsm_plugins.contract.status import Unauthenticated
from rsm_plugins.contract.tls import Tls
from tests.builders.certificates import Authority
from tests.builders.log_dir import TOPIC
from tests.rlm.api.authorised import READER, SERVICES, authorised_node, principals
from tests.rlm.api.harness import channel_to
from tests.rlm.api.test_tls import HOST, client_tls, server_tls
from tests.rlm.topics.cluster import Cluster


async def who_is(address: str, tls: Tls | None, token: str | None) -> str:
    """Whom a freeze is said to be by, or why it is refused."""
    request = pb.FreezeRequest(topic=TOPIC, why="x")
    async with channel_to(address, tls) as channel:
        try:
            found = await AdminServiceStub(channel).Freeze(
                request, metadata=call_metadata("claimed", token), timeout=60
            )
        except aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
    return str(found.freezes[0].by)


def known(*, by_kafka: bool = False) -> Principals:
    entry = {"certificates": ["CN=etl"], "tokens": [token_hash("etl-token")]}
    return principals_of(
        {"User:etl": entry if by_kafka else entry | {"topics": {TOPIC: ["admin"]}}},
        has_rights=not by_kafka,
    )


async def test_a_certificate_is_its_principal_and_a_token_counts_before_it(
    tmp_path: Path,
) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    tls = server_tls(authority.issue("service", HOST), clients)
    etl = client_tls(authority, clients.issue("etl"))
    other = client_tls(authority, clients.issue("other"))
    async with authorised_node(Cluster(), known=known(), tls=tls) as site:
        assert await who_is(site.address, etl, None) == "User:etl"
        assert await who_is(site.address, other, "etl-token") == "User:etl"
        assert await who_is(site.address, other, SERVICES) == "claimed"
        for shown, token, why in (
            (other, None, "the certificate of CN=other is of no principal in api.principals.file"),
            (etl, "wrong", "the call shows no valid token"),
        ):
            found = await who_is(site.address, shown, token)
            assert found.startswith(f"UNAUTHENTICATED: {why}"), found
        site.principals = known(by_kafka=True)
        found = await who_is(site.address, other, None)
        assert found.startswith("PERMISSION_DENIED: User:CN=other has no right"), found
        mapping = PrincipalMapping("RULE:^CN=(o.*)$/$1/U")
        site.principals = principals_of({}, has_rights=False, mapping=mapping)
        found = await who_is(site.address, other, None)
        assert found.startswith("PERMISSION_DENIED: User:OTHER has no right"), found
        found = await who_is(site.address, etl, None)
        assert found.startswith("UNAUTHENTICATED: the certificate of CN=etl is of no"), found


class CertificateContext:
    """A call that shows a certificate and no token."""

    def __init__(self, subject: str, certificate: Path | None = None) -> None:
        self._subject = subject
        self._certificate = certificate

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        found: dict[str, tuple[bytes, ...]] = {"x509_subject": (self._subject.encode(),)}
        if self._certificate is not None:
            found["x509_pem_cert"] = (self._certificate.read_bytes(),)
        return found

    def peer(self) -> str:
        return "ipv4:10.0.0.1:40000"


@pytest.mark.parametrize("name", ["Jürgen", "x" * 257])
def test_a_certificate_whose_principal_no_call_can_carry_is_named_in_the_file(name: str) -> None:
    """A command of that caller could not be forwarded."""
    context: Any = CertificateContext(f"CN={name}")
    unnamed = Gate(no_tokens, lambda: principals_of({}, has_rights=False))
    with pytest.raises(Unauthenticated, match=r"name the certificate in api\.principals\.file"):
        unnamed.admit(context)
    named = principals_of({"User:j": {"certificates": [f"CN={name}"]}}, has_rights=False)
    assert Gate(no_tokens, lambda: named).admit(context).principal == "User:j"


def by_rules(rules: str, **names: str) -> Gate:
    """Callers by the rules of the setting; `names` are of certificates that the file names."""
    content = {f"User:{name}": {"certificates": [one]} for name, one in names.items()}
    mapping = PrincipalMapping(rules)
    return Gate(no_tokens, lambda: principals_of(content, has_rights=False, mapping=mapping))


def test_the_rules_of_the_brokers_name_who_the_file_does_not(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("alice.example")
    alice: Any = CertificateContext("CN=alice.example", issued.cert_file)
    first = by_rules(r"RULE:^CN=([a-z]+)\..*$/$1/,DEFAULT")
    assert first.admit(alice).principal == "User:alice"
    named = by_rules(r"RULE:^CN=([a-z]+)\..*$/$1/", etl="CN=alice.example")
    assert named.admit(alice).principal == "User:etl"
    for rules in ("RULE:^O=.*$/x/", "RULE:^CN=.*$//"):
        with pytest.raises(Unauthenticated, match=r"or by ssl\.principal\.mapping\.rules"):
            by_rules(rules).admit(alice)
    with pytest.raises(Unauthenticated, match=r"is nobody's here: .* a group that is not there"):
        by_rules("RULE:^CN=(.*)$/${name}/").admit(alice)


def test_the_rules_see_the_subject_as_brokers_do_and_not_as_grpc_does(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("Jürgen", "localhost")
    juergen: Any = CertificateContext("CN=J\\C3\\BCrgen", issued.cert_file)
    rules = "RULE:^CN=Jürgen$/juergen/,RULE:^.*$/somebody-else/"
    assert by_rules(rules).admit(juergen).principal == "User:juergen"
    issued.cert_file.write_bytes(b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
    with pytest.raises(Unauthenticated, match="certificate cannot be read"):
        by_rules("DEFAULT").admit(juergen)


async def test_who_shows_nothing_learns_what_is_asked_for() -> None:
    async with authorised_node(Cluster(), known=known()) as site:
        found = await who_is(site.address, None, None)
        assert "shows neither a token (authorization: Bearer ...) nor a client certificate" in found
        assert await who_is(site.address, None, "etl-token") == "User:etl"


async def test_a_token_of_the_services_that_is_a_principals_too_is_refused() -> None:
    """Whoever meant to limit it would have given every right."""
    both = principals_of({"etl": {"tokens": [token_hash(SERVICES)], "topics": {"a": ["read"]}}})
    async with authorised_node(Cluster(), known=both) as site:
        found = await who_is(site.address, None, SERVICES)
        assert found.startswith("UNAUTHENTICATED: the token is that of etl in api.principals.file")
        assert SERVICES not in found


async def test_a_changed_file_counts_from_the_next_call_on() -> None:
    async with authorised_node(Cluster()) as site:
        assert (await who_is(site.address, None, f"{READER}-token")).startswith("PERMISSION")
        site.principals = principals(reader={TOPIC: ["operate"]})
        assert await who_is(site.address, None, f"{READER}-token") == READER
        site.principals = principals(other={TOPIC: ["operate"]})
        assert (await who_is(site.address, None, f"{READER}-token")).startswith("UNAUTHENTICATED")


@pytest.mark.parametrize("address", ["10.0.0.9:9095", "broker-9.example:9095", "here"])
async def test_a_token_goes_to_no_other_machine_without_tls(address: str) -> None:
    """Whoever may write heartbeats names the addresses of peers."""

    async def call(stubs: Stubs, sent: tuple[tuple[str, str], ...], timeout: float) -> str:
        return "sent"

    async with authorised_node(Cluster()) as site:
        peers = site.fakes.peers
        assert await peers.ask(site.address, call) == "sent"
        with pytest.raises(Unavailable, match="it does not send its token there"):
            await peers.ask(address, call)
        rows = peers.stream(
            address,
            lambda stubs, sent: stubs.admin.Verify(pb.VerifyRequest(), metadata=sent),
            principal="me",
            idle_ms=1,
        )
        with pytest.raises(Unavailable, match="it does not send its token there"):
            await anext(rows)
