"""Targets: messages that are decoded by tables, and the tokens of SASL."""

import base64
from typing import Any

from kafka_protocol.apis import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kafka_protocol.frames import parse_request_header, parse_response_header
from kafka_protocol.primitives import WireError
from kafka_protocol.sasl import OauthBearerExchange, PlainExchange, SaslError, ScramExchange
from kafka_protocol.schema import Api, Value, decode, encode
from rlm.proxy.delete_records import (
    Forwarded,
    Refused,
    asked_once,
    forwarded_request,
    merged_answer,
)
from rlm.proxy.position_answers import paired, questions
from rlm.proxy.sasl import SaslWatch
from tests.fuzz.case import READ, REFUSED, REQUEST, RESPONSE, Case
from tests.fuzz.mutations import mutated

_TRIED_BYTES = 2_000
_SALTED = bytes(range(32))
_QUESTIONS = {
    LIST_OFFSETS.key: ("timestamp", "name", "partition_index"),
    OFFSET_FOR_LEADER_EPOCH.key: ("leader_epoch", "topic", "partition"),
    DELETE_RECORDS.key: ("offset", "name", "partition_index"),
}


def any_message(case: Case) -> str:
    """What was decoded is encoded to bytes that mean the same."""
    sample = case.corpus.any(case.rng, case.rng.choice((REQUEST, RESPONSE)))
    frame, api, version = case.damaged(sample), sample.api, sample.version
    schema = api.request if sample.kind == REQUEST else api.response
    try:
        if sample.kind == REQUEST:
            position = parse_request_header(frame).body_offset
        else:
            position = parse_response_header(frame, api, version)[1]
        value, _ = decode(schema, version, frame, position)
        again = encode(schema, version, value)
    except WireError:
        return REFUSED
    shifted, end = decode(schema, version, b"\xff" + again, 1)
    assert end == len(again) + 1
    assert encode(schema, version, shifted) == again
    return READ


def offsets(case: Case) -> str:
    """Requests about offsets, and an answer that may be to another one."""
    api = case.rng.choice((LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DELETE_RECORDS))
    asking = case.corpus.any(case.rng, REQUEST, api)
    variant = case.rng.randrange(8)
    answering = case.corpus.sample(api, RESPONSE, asking.version, variant)
    try:
        request = _asked(api, asking.version, case.damaged(asking))
        response = _answered(api, asking.version, case.damaged(answering))
    except WireError:
        return REFUSED
    field, name, index = _QUESTIONS[api.key]
    asked = questions(request, field, name=name, index=index)
    if case.rng.random() < 0.5:
        response = {**response, "topics": _echoed(asked, name, index)}
    pairs = paired(asked, response, name=name, index=index)
    assert len(pairs) <= len(asked)
    for one, answered in pairs:
        assert answered[index] == one.partition
    if api is DELETE_RECORDS:
        _delete_records(case, request, response)
    return READ


def _asked(api: Api, version: int, frame: bytes) -> Value:
    header = parse_request_header(frame)
    if (header.api_key, header.api_version) != (api.key, version):
        raise WireError("another request")
    return decode(api.request, version, frame, header.body_offset)[0]


def _answered(api: Api, version: int, frame: bytes) -> Value:
    position = parse_response_header(frame, api, version)[1]
    return decode(api.response, version, frame, position)[0]


def _echoed(asked: list[Any], name: str, index: str) -> list[Value]:
    rows = [{index: one.partition, "error_code": 0, "low_watermark": 1} for one in asked]
    return [{name: one.topic, "partitions": [row]} for one, row in zip(asked, rows, strict=True)]


def _delete_records(case: Case, request: Value, response: Value) -> None:
    refused = Refused(error_code=5)
    decisions: dict[tuple[str, int], Forwarded | Refused] = {
        key: Forwarded(question=one, offset=one.asked, view=None)
        if case.rng.random() < 0.7
        else refused
        for key, one in asked_once(request).items()
    }
    forwarded = forwarded_request(request, decisions)
    version = case.rng.choice(case.corpus.versions(DELETE_RECORDS))
    if forwarded is not None and version >= 2:
        encode(DELETE_RECORDS.request, version, forwarded)
    answer = merged_answer(response if forwarded is not None else None, decisions)
    assert sum(len(topic["partitions"]) for topic in answer["topics"]) <= len(decisions)


def sasl(case: Case) -> str:
    """A server that answers anything, and a client that names itself by anything."""
    watch, rng = SaslWatch("sub"), case.rng
    watch.began(rng.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "")))
    claims = base64.urlsafe_b64encode(mutated(b'{"sub":"user","n":[[1]]}', rng)).rstrip(b"=")
    bearer = b"n,a=user,\x01auth=Bearer e30." + claims + b".AAAA\x01x=y\x01\x01"
    tokens = (b"\0user\0secret", b"n,,n=us=2Cer,r=abc", b"c=biws,r=abcdef,p=AAAA", bearer)
    for token in tokens:
        tried = mutated(token, rng)[:_TRIED_BYTES] if rng.random() < 0.8 else token
        name = watch.accepted(tried, rng.choice((b"", b"{}")))
        assert name is None or (name.isprintable() and 0 < len(name) < 250)
    exchange = rng.choice(
        (
            ScramExchange(
                rng.choice(("SCRAM-SHA-256", "SCRAM-SHA-512")),
                "user",
                "secret",
                nonce="abc",
                salted_password=lambda *_: _SALTED,
            ),
            PlainExchange("user", "secret"),
            OauthBearerExchange("token"),
        )
    )
    exchange.first()
    salt = base64.b64encode(rng.randbytes(9))
    try:
        for challenge in (b"r=abcdef,s=" + salt + b",i=4096", b"v=" + salt, b""):
            answer = exchange.answer(mutated(challenge, rng))
            assert answer is None or b"secret" not in answer
            if answer is None:
                return READ
    except SaslError as error:
        assert "secret" not in str(error)
        return REFUSED
    return READ
