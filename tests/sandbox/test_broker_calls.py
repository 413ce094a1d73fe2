"""Single requests of a sandbox: answers in any cut, and what is none."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_protocol.apis import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.frames import encode_response, parse_request_header, with_length
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import decode
from rlm_sandbox.security.broker_calls import BrokerCalls, NotAuthenticated


@pytest.fixture
def ends() -> Iterator[tuple[BrokerCalls, socket.socket]]:
    """Calls, and the broker's end of their connection."""
    ours, broker = socket.socketpair()
    with ours, broker:
        for one in (ours, broker):
            one.settimeout(60)
        yield BrokerCalls(ours), broker


def metadata(correlation_id: int) -> bytes:
    """An answer that names one broker."""
    node = {"node_id": 7, "host": "h", "port": 1, "rack": None}
    answer = {"brokers": [node], "controller_id": 7, "topics": []}
    return encode_response(METADATA, 1, correlation_id, answer)


def ask(calls: BrokerCalls) -> object:
    return calls.call(METADATA, 1, {"topics": []})["controller_id"]


def test_each_request_has_a_number_of_its_own(ends: tuple[BrokerCalls, socket.socket]) -> None:
    calls, broker = ends
    for number in (1, 2):
        broker.sendall(metadata(number))
        assert ask(calls) == 7
        assert parse_request_header(broker.recv(1_000)[4:]).correlation_id == number


def test_an_answer_to_another_request_is_refused(ends: tuple[BrokerCalls, socket.socket]) -> None:
    calls, broker = ends
    broker.sendall(metadata(2))
    with pytest.raises(WireError, match="the answer is to request 2, not to 1"):
        ask(calls)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", EOFError),
        (metadata(1)[:9], EOFError),
        (with_length(metadata(1)[4:] + b"x"), WireError),
        ((1 << 21).to_bytes(4, "big"), WireError),
        (b"\x15\x03\x03\0\x02\x02\x28", WireError),  # a TLS alert
    ],
)
def test_what_is_no_answer_is_an_error(
    ends: tuple[BrokerCalls, socket.socket], said: bytes, error: type[Exception]
) -> None:
    calls, broker = ends
    broker.sendall(said)
    broker.shutdown(socket.SHUT_WR)
    with pytest.raises(error):
        ask(calls)


def test_a_principal_that_is_refused_is_named(ends: tuple[BrokerCalls, socket.socket]) -> None:
    calls, broker = ends
    proofs: list[bytes] = []

    def refuse() -> None:
        broker.recv(1_000)
        mechanisms = {"error_code": 0, "mechanisms": ["PLAIN"]}
        broker.sendall(encode_response(SASL_HANDSHAKE, 1, 1, mechanisms))
        asked = broker.recv(1_000)[4:]
        position = parse_request_header(asked).body_offset
        proofs.append(decode(SASL_AUTHENTICATE.request, 0, asked, position)[0]["auth_bytes"])
        refusal = {"error_code": 58, "error_message": "no", "auth_bytes": b""}
        broker.sendall(encode_response(SASL_AUTHENTICATE, 0, 2, refusal))

    with ThreadPoolExecutor(1) as threads:
        refusing = threads.submit(refuse)
        with pytest.raises(NotAuthenticated, match="the broker refuses ann: error 58"):
            calls.authenticate("ann", "right")
        refusing.result()
    assert proofs == [b"\0ann\0right"]
