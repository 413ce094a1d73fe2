"""Connections of Kafka clients of an attached reader: limits, TLS, counts, ends."""

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_protocol.schema import Api, Value
from kip405.addresses import Address
from kip405.errors import Corrupt, Invalid
from rlm.clock import SystemClock, next_turn
from rlm.history_proxy import listener as listening
from rlm.history_proxy.listener import HistoryListener
from rlm.proxy.tls_files import ListenerTls
from rsm_plugins.renewed import Renewed
from tests.builders.certificates import Authority
from tests.rlm.history_proxy.served import END, NAME, bases, proxy
from tests.rlm.proxy.secured import trusting
from tests.rlm.proxy.test_tls import renew
from tests.rlm.proxy.uncounted import Counting
from tests.waiting import until


async def test_h36_connections_are_bounded(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        held = [
            await asyncio.open_connection("127.0.0.1", client.port)
            for _ in range(listening.MOST_CONNECTIONS)
        ]
        was_refused = False
        try:
            await client.fetch(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            was_refused = True
        for _, writer in held:
            writer.transport.abort()
        assert was_refused


async def test_a_connection_that_was_only_just_accepted_is_ended() -> None:
    async with asyncio.TaskGroup() as tasks:
        listener = _listener(tasks, 0)
        port = await listener.start()
        connecting = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port))
        async with asyncio.timeout(60):
            while not listener._open:
                await next_turn()
            await listener.close()
            reader, writer = await connecting
            try:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
            finally:
                writer.transport.abort()


async def test_with_tls_only_certificates_are_let_in_and_renewed_files_are_shown(
    tmp_path: Path,
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    shown, mine = authority.issue(NAME), authority.issue("mine")
    tls = ListenerTls(
        cert_file=str(shown.cert_file),
        key_file=str(shown.key_file),
        client_ca_file=str(authority.ca_file),
        client_auth="required",
    )
    contexts = Renewed(tls.files, tls.context)
    async with proxy(tmp_path, contexts=contexts, tls=trusting(authority, mine)) as (_, client):
        await client.made.read()
        assert bases(await client.fetch(0))[0] == 0
        causes = client.metrics.causes
        for wrong in (None, trusting(authority), trusting(authority, other.issue("mine"))):
            known = len(causes)
            with pytest.raises((OSError, EOFError)):
                await _seen(client.port, wrong)
            await until(lambda known=known: len(causes) > known)  # type: ignore[misc]
        assert causes[-3:] == ["plain_on_tls", "tls_no_certificate", "tls_certificate_refused"]
        before = await _seen(client.port, trusting(authority, mine))
        fresh = authority.issue("fresh", NAME)
        renew(tls.key_file, fresh.key_file)
        renew(tls.cert_file, fresh.cert_file)
        after = await _seen(client.port, trusting(authority, mine))
        assert before != after
        assert bases(await client.fetch(0))[0] == 0


async def _seen(port: int, tls: ssl.SSLContext | None) -> bytes:
    """The certificate that the listener shows to a client that it serves."""

    def come() -> bytes:
        with socket.create_connection(("127.0.0.1", port), 60) as plain:
            if tls is None:
                plain.sendall(b"\0\0\0\1")
                raise EOFError if not plain.recv(1) else AssertionError
            with tls.wrap_socket(plain, server_hostname=NAME) as secured:
                shown = secured.getpeercert(binary_form=True)
                secured.sendall(b"\x7f\xff\xff\xff")
                secured.recv(1)
                return shown or b""

    return await asyncio.to_thread(come)


async def test_what_clients_ask_and_get_is_counted(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        row = await client.fetch(0)
        await client.fetch(END + 1)
        await client.position(-1)
        metrics = client.metrics
        assert metrics.spliced_bytes == len(row["records"]) > 0
        expected = [("fetch", "remote"), ("fetch", "error_1"), ("list_offsets", "remote")]
        assert metrics.outcomes == expected
        with suppress(asyncio.IncompleteReadError):
            await client.raw(b"\x7f\xff\xff\xff")
        await until(lambda: len(metrics.causes) == 4)
        assert metrics.causes[-1] == "bad_frame"


async def test_a_client_that_takes_its_answer_slowly_goes_on_and_a_dead_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit is one of progress: on a slow line a whole answer may take longer."""
    monkeypatch.setattr(listening, "STALLED_MS", 2_000)
    answer = bytes(8 << 20)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sending = asyncio.ensure_future(listening._send(ours, answer))
        loop, taken = asyncio.get_running_loop(), 0
        theirs.setblocking(False)
        while taken < len(answer):
            piece = await loop.sock_recv(theirs, 1 << 20)
            taken += len(piece)
            await next_turn()
        await sending
        with pytest.raises(TimeoutError):
            await listening._send(ours, answer)


async def test_a_port_that_is_taken_is_named() -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with asyncio.TaskGroup() as tasks:
        listener = _listener(tasks, port)
        with pytest.raises(Invalid, match=rf"proxy\.listen: cannot listen on 127.0.0.1:{port}"):
            await listener.start()
    taken.close()


def _listener(tasks: asyncio.TaskGroup, port: int) -> HistoryListener:
    return HistoryListener(
        at=Address(host="127.0.0.1", port=port),
        answers=_Nobody(),
        tasks=tasks,
        clock=SystemClock(),
        metrics=Counting(),
    )


class _Nobody:
    async def answer(self, api: Api, version: int, request: Value) -> Value:
        raise Corrupt("nobody asks")
