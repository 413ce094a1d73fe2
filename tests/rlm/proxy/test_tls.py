"""TLS at the proxy: who is let in, renewal of certificates, and TLS towards the broker."""

import asyncio
import contextlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from kafka_protocol.apis import FETCH, PRODUCE
from kip405.errors import Invalid
from rlm.proxy.tls_files import ListenerTls, ProxyTls, UpstreamTls
from rlm.workers.tls import tls_contexts
from tests.builders.certificates import Authority, Certificate
from tests.rlm.proxy.border import ONE_PROCESS
from tests.rlm.proxy.fakes import (
    PLAIN,
    FakeBroker,
    Log,
    World,
    asked,
    blob,
    fetch_request,
    only,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.secured import (
    BROKER_NAME,
    PROXY_NAME,
    Secured,
    secure,
    serving,
    trusting,
)
from tests.rlm.proxy.test_pass_through import produce_request, raw_request
from tests.waiting import until

OPAQUE_KEY = 999
here = pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with secure(Secured.of(tmp_path)) as made:
        yield made


async def cause_of(w: World, client: ssl.SSLContext) -> str:
    """Why the proxy ends a client that comes so."""

    def come() -> None:
        """As most clients do, with a socket that waits: asyncio's sends no alerts."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(at, 20) as plain,
            client.wrap_socket(plain, server_hostname=PROXY_NAME) as wrapped,
        ):
            wrapped.recv(1)

    at, known = ("127.0.0.1", w.proxy.port), len(w.metrics.causes)
    await asyncio.to_thread(come)
    await until(lambda: len(w.metrics.causes) > known)
    return w.metrics.causes[-1]


@contextlib.asynccontextmanager
async def opened(w: World) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that has not said anything yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", w.proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def asks(client: RawClient) -> bool:
    """Whether the client's requests are answered."""
    client.writer.write(raw_request(OPAQUE_KEY, 7, b"?"))
    async with asyncio.timeout(60):
        return await client.frame() == b"\0\0\0\7yes"


def broker() -> FakeBroker:
    return FakeBroker(raw_answers={OPAQUE_KEY: b"yes"})


def renew(target: str, source: Path) -> None:
    """Replaces a file as an operator's tool does: the new one is renamed over it."""
    fresh = source.with_name("fresh")
    shutil.copyfile(source, fresh)
    fresh.rename(target)


@here
async def test_large_answers_and_requests_pass_whole_and_nothing_goes_past_openssl(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("bytes went past TLS")

    logs = {(PLAIN, 0): Log(record_bytes=60_000)}
    question, answer = bytes(range(256)) * 8_000, b"answer" * 700_000
    async with world(
        broker=FakeBroker(logs=logs, raw_answers={OPAQUE_KEY: answer}), tier=None
    ) as w:
        client = await w.connect()
        monkeypatch.setattr("os.writev", refuse)
        monkeypatch.setattr("os.splice", refuse, raising=False)
        request = fetch_request(
            12, asked(150, max_bytes=10_000_000), topic=PLAIN, max_bytes=10_000_000
        )
        assert only(await client.call(FETCH, 12, request))["records"] == blob(150, 200, 60_000)
        client.writer.write(raw_request(OPAQUE_KEY, 5, question))
        assert await client.frame() == b"\0\0\0\5" + answer
        assert w.broker.seen[-1][1].endswith(question)
        produced = await client.call(PRODUCE, 9, produce_request(9))
        assert produced["responses"][0]["partition_responses"][0]["base_offset"] == 7


@here
async def test_who_does_not_come_as_asked_is_ended_for_a_cause_that_has_a_name(
    secured: Secured, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = Authority(other).issue("stranger")
    known = secured.authority.issue("known")
    expired = secured.authority.issue("expired", is_expired=True)
    secured.listener(
        client_ca_file=str(secured.authority.ca_file),
        client_auth="required",
        min_version="TLSv1.3",
    )
    old = trusting(secured.authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with world(broker=broker()) as w:
        assert await cause_of(w, trusting(secured.authority)) == "tls_no_certificate"
        for shown in (stranger, expired):
            refused = await cause_of(w, trusting(secured.authority, shown))
            assert refused == "tls_certificate_refused"
        assert await cause_of(w, old) == "tls_version"
        distrustful = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        assert await cause_of(w, distrustful) == "tls_refused_by_client"
        assert w.broker.connections == 0  # none of them has cost the broker anything
        secured.client = trusting(secured.authority, known)
        assert await asks(await w.connect())
        assert not w.proxy.is_shaking_hands


def resumed(
    w: World, client: ssl.SSLContext, before: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, bool, bool]:
    """The session of another connection, whether it resumes `before`, and whether it is served."""
    with (
        socket.create_connection(("127.0.0.1", w.proxy.port), 20) as plain,
        client.wrap_socket(plain, server_hostname=PROXY_NAME, session=before) as wrapped,
    ):
        answer = b""
        with contextlib.suppress(OSError):
            wrapped.sendall(raw_request(OPAQUE_KEY, 7, b"?"))
            while len(answer) < 11 and (more := wrapped.recv(11 - len(answer))):
                answer += more
        return wrapped.session, bool(wrapped.session_reused), answer.endswith(b"yes")


@here
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_an_expired_certificate_ends_with_its_session(
    secured: Secured, version: ssl.TLSVersion
) -> None:
    secured.listener(client_ca_file=str(secured.authority.ca_file), client_auth="required")
    async with world(broker=broker()) as w:
        life_s = 5
        while True:
            end = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=life_s)
            named, until_text = f"short-{life_s}", end.strftime("%y%m%d%H%M%SZ").encode()
            client = trusting(secured.authority, secured.authority.issue(named, end=until_text))
            client.minimum_version = client.maximum_version = version
            session: ssl.SSLSession | None = None
            came: list[list[bool]] = []
            with contextlib.suppress(OSError):  # it has expired already
                for _ in range(2):
                    session, *how = await asyncio.to_thread(resumed, w, client, session)
                    came.append(how)
            if datetime.now(UTC) < end or life_s > 5:
                break
            life_s = 30  # a busy machine needs more
        assert came == [[False, True], [True, True]]
        await until(lambda: datetime.now(UTC) >= end)
        served = await asyncio.to_thread(resumed, w, client, session)
        assert not served[2]
        await until(lambda: "tls_certificate_refused" in w.metrics.causes)


@here
async def test_an_issuing_authority_is_enough_to_trust_whom_it_has_issued(
    secured: Secured, tmp_path: Path
) -> None:
    """As Java has it: each certificate of a truststore is trusted by itself."""
    root = Authority(tmp_path, "root")
    issuing, sibling = (Authority(tmp_path, name, root) for name in ("issuing", "sibling"))
    known, stranger = (one.issue("client") for one in (issuing, sibling))
    secured.listener(client_ca_file=str(issuing.ca_file), client_auth="required")
    upstream = secured.tls.upstream
    assert upstream is not None
    secured.tls = replace(secured.tls, upstream=replace(upstream, ca_file=str(issuing.ca_file)))
    secured.broker = serving(issuing.issue(BROKER_NAME))
    async with world(broker=broker()) as w:
        refused = await cause_of(w, trusting(secured.authority, stranger))
        assert refused == "tls_certificate_refused"
        secured.client = trusting(secured.authority, known)
        assert await asks(await w.connect())
    secured.broker = serving(sibling.issue(BROKER_NAME))
    async with world(broker=broker()) as w:
        await w.connect()
        await until(lambda: w.metrics.causes == ["broker_tls_failed"])


@here
@pytest.mark.parametrize(("auth", "shown"), [("requested", False), ("requested", True)])
async def test_a_certificate_that_is_only_requested_may_be_left_out(
    secured: Secured, auth: str, *, shown: bool
) -> None:
    secured.listener(client_ca_file=str(secured.authority.ca_file), client_auth=auth)
    known = secured.authority.issue("known") if shown else None
    secured.client = trusting(secured.authority, known)
    async with world(broker=broker()) as w:
        assert await asks(await w.connect())


@here
async def test_ciphers_can_be_chosen(secured: Secured) -> None:
    secured.listener(ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
    other = trusting(secured.authority)
    other.maximum_version = ssl.TLSVersion.TLSv1_2
    other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    async with world(broker=broker()) as w:
        assert await cause_of(w, other) == "tls_no_shared_cipher"
        other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        secured.client = other
        assert await asks(await w.connect())


@here
async def test_h36_who_says_nothing_or_speaks_no_tls_is_ended(secured: Secured) -> None:
    with capture_logs() as logs:
        async with world(broker=broker(), handshake_timeout_ms=500) as w:
            async with opened(w) as (silent, _):
                assert await silent.read() == b""
            async with opened(w) as (half, writer):
                writer.write(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
                assert await half.read() == b""
            await until(lambda: len(w.metrics.causes) == 2)
        causes = w.metrics.causes
        async with world(broker=broker()) as w:
            async with opened(w) as (plain, writer):
                writer.write(raw_request(18, 1, b"a secret"))
                with contextlib.suppress(ConnectionError):
                    assert await plain.read() == b""
            async with opened(w):
                pass
            await until(lambda: len(w.metrics.causes) == 2)
            causes = causes + w.metrics.causes
            assert await asks(await w.connect())
    expected = ["tls_timeout", "tls_timeout", "plain_on_tls", "client_closed"]
    assert causes == expected
    assert [line["cause"] for line in logs if line["event"] == "client_turned_away"] == expected
    assert "a secret" not in str(logs)


@here
async def test_clients_in_their_handshake_count_as_connections(secured: Secured) -> None:
    async with world(broker=broker(), max_connections=2, handshake_timeout_ms=60_000) as w:
        async with opened(w):
            client = await w.connect()
            assert await asks(client)
            async with opened(w) as (refused, _):
                assert await refused.read() == b""
        await until(lambda: not w.proxy.is_shaking_hands)
        assert await asks(await w.connect())


@here
async def test_a_renewed_certificate_is_shown_to_whoever_comes_next_and_cuts_nobody(
    secured: Secured, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    successor = Authority(folder, "successor")
    fresh, junk = successor.issue(PROXY_NAME), tmp_path / "junk"
    junk.write_text("nothing", encoding="ascii")
    async with world(broker=broker()) as w:
        listener = secured.tls.listener
        assert listener is not None
        before = await w.connect()
        renew(listener.cert_file, fresh.cert_file)  # the key is not there yet
        with capture_logs() as logs:
            assert await asks(await w.connect())
        assert [line["event"] for line in logs if "files" in line] == ["renewal_failed"]
        renew(listener.key_file, fresh.key_file)
        secured.client = trusting(successor)
        assert await asks(await w.connect())
        assert await asks(before)
        renew(listener.cert_file, junk)
        assert await asks(await w.connect())
        assert await asks(before)


@here
async def test_the_broker_is_trusted_by_its_authority_and_its_name(
    secured: Secured, tmp_path: Path
) -> None:
    async def answers(**changes: object) -> tuple[bool, list[str]]:
        upstream = secured.tls.upstream
        assert upstream is not None
        changed = replace(upstream, **changes)  # type: ignore[arg-type]  # of one test
        secured.tls = replace(secured.tls, upstream=changed)
        async with world(broker=broker()) as w:
            client = await w.connect()
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                return await asks(client), w.metrics.causes
            await until(lambda: bool(w.metrics.causes))
            return False, w.metrics.causes

    other = tmp_path / "other"
    other.mkdir()
    assert (await answers())[0]
    failed = False, ["broker_tls_failed"]
    assert await answers(server_name="another.test") == failed
    assert (await answers(server_name="another.test", checks_name=False))[0]
    assert await answers(ca_file=str(Authority(other).ca_file), checks_name=True) == failed


@here
async def test_the_proxy_shows_its_certificate_to_a_broker_that_asks_for_one(
    secured: Secured,
) -> None:
    own = secured.authority.issue("the-proxy")
    secured.broker.verify_mode = ssl.CERT_REQUIRED
    secured.broker.load_verify_locations(secured.authority.ca_file)
    upstream = secured.tls.upstream
    assert upstream is not None
    shown = replace(upstream, cert_file=str(own.cert_file), key_file=str(own.key_file))
    secured.tls = replace(secured.tls, upstream=shown)
    async with world(broker=broker()) as w:
        assert await asks(await w.connect())


@here
@pytest.mark.parametrize("side", ["listener", "upstream"])
async def test_either_side_may_be_plain(secured: Secured, side: str) -> None:
    secured.tls = replace(secured.tls, **{side: None})
    async with world(broker=broker()) as w:
        assert await asks(await w.connect())


def encrypted(shown: Certificate) -> bytes:
    """Its key with the password `opensesame`."""
    key = serialization.load_pem_private_key(shown.key_file.read_bytes(), password=None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"opensesame"),
    )


def test_a_key_with_a_password_is_read_and_a_wrong_one_is_refused_in_words(
    tmp_path: Path,
) -> None:
    shown = Authority(tmp_path).issue("here")
    shown.key_file.write_bytes(encrypted(shown))
    password = tmp_path / "password"
    plain = ListenerTls(cert_file=str(shown.cert_file), key_file=str(shown.key_file))
    listener = replace(plain, key_password_file=str(password))
    password.write_text("opensesame\n", encoding="ascii")
    assert tls_contexts(ProxyTls(listener=listener)).listener is not None
    assert password in listener.files
    password.write_text("sesameopen\n", encoding="ascii")
    for tls, words in ((listener, "are not a certificate"), (plain, "needs its password file")):
        with pytest.raises(Invalid, match=words) as refused:
            tls.context()
        assert "sesame" not in repr(refused.value) + repr(refused.value.__cause__)


def test_files_that_cannot_be_used_are_refused_by_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    good = ListenerTls(cert_file=str(one.cert_file), key_file=str(one.key_file))
    gone, junk = tmp_path / "gone.pem", tmp_path / "junk.pem"
    junk.write_bytes(b"\xff\xfe")
    wrong: list[tuple[ListenerTls | UpstreamTls, str]] = [
        (replace(good, key_file=str(other.key_file)), "one.pem and .*other.key are not"),
        (replace(good, cert_file=str(gone)), "cannot read .*gone.pem: No such file"),
        (replace(good, client_ca_file=str(junk), client_auth="required"), "junk.pem is not PEM"),
        (replace(good, ciphers="NO-SUCH-CIPHER"), "proxy.tls.ciphers: OpenSSL knows none"),
        (UpstreamTls(ca_file=str(one.key_file)), "broker.tiered.tls.ca.file: .*one.key cannot"),
        (
            UpstreamTls(
                ca_file=str(authority.ca_file),
                cert_file=str(one.cert_file),
                key_file=str(other.key_file),
            ),
            "broker.tiered.tls.cert.file: .*one.pem and .*other.key cannot be used",
        ),
    ]
    for tls, words in wrong:
        with pytest.raises(Invalid, match=words):
            tls.context()


def test_a_value_comes_back_from_the_settings_of_a_worker_also_from_a_later_version() -> None:
    tls = ProxyTls(
        listener=ListenerTls(cert_file="/c", key_file="/k", client_auth="requested"),
        upstream=UpstreamTls(ca_file="/ca", checks_name=False),
    )
    content = tls.as_json()
    content["listener"]["of_a_later_version"] = 1
    assert ProxyTls.of(content) == tls
    assert ProxyTls.of({}) == ProxyTls()


def test_no_old_protocol_and_no_renegotiation_is_allowed(tmp_path: Path) -> None:
    shown = Authority(tmp_path).issue("here")
    context = ListenerTls(cert_file=str(shown.cert_file), key_file=str(shown.key_file)).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
