"""Requests for tokens byte for byte, and what their answers may be."""

import base64
import json
from typing import Any

import pytest

from kafka_clients.bearer_tokens import (
    BearerToken,
    TokenRefused,
    read_token,
    read_token_answer,
    token_address,
    token_request,
)


def jwt(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims)
    head, body = (base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in parts)
    return f"{head.rstrip('=')}.{body.rstrip('=')}.signature"


def request(url: str = "https://idp.example/token", **changed: Any) -> bytes:
    given = {"client_id": "rlm", "client_secret": "s3cret", "scope": "", "urlencodes_header": False}
    return token_request(token_address(url), **{**given, **changed})


def test_the_request_of_rfc_6749() -> None:
    assert request("https://idp.example:8443/realms/a/token?x=1", scope="kafka read") == (
        b"POST /realms/a/token?x=1 HTTP/1.1\r\n"
        b"Host: idp.example:8443\r\n"
        b"Authorization: Basic " + base64.b64encode(b"rlm:s3cret") + b"\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: 46\r\n"
        b"Accept: application/json\r\n"
        b"Connection: close\r\n\r\n"
        b"grant_type=client_credentials&scope=kafka+read"
    )


def test_id_and_secret_are_encoded_on_request_only() -> None:
    odd = {"client_id": "a b", "client_secret": "c:/d"}
    assert base64.b64encode(b"a b:c:/d") in request(**odd)
    assert base64.b64encode(b"a+b:c%3A%2Fd") in request(**odd, urlencodes_header=True)


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "target"),
    [
        ("https://h", "h", 443, "h", "/"),
        ("http://h:80/t", "h", 80, "h", "/t"),
        ("http://h:443/t", "h", 443, "h:443", "/t"),
        ("https://[::1]:8443/t", "::1", 8443, "[::1]:8443", "/t"),
    ],
)
def test_addresses(url: str, host: str, port: int, authority: str, target: str) -> None:
    found = token_address(url)
    assert (found.host, found.port, found.authority, found.target) == (
        host,
        port,
        authority,
        target,
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:1",
        "ftp://h",
        "https://",
        "https://u:p@h/",
        "https://h/#f",
        "https://h/a b",
        "http://h:x",
    ],
)
def test_what_is_no_token_endpoint(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        token_address(url)
    assert ":p@" not in str(refused.value)


def test_an_answer_with_a_lifetime() -> None:
    body = json.dumps({"access_token": "abc", "token_type": "Bearer", "expires_in": 300}).encode()
    assert read_token_answer(200, body) == BearerToken(text="abc", lifetime_s=300)
    assert "abc" not in repr(read_token_answer(200, body))


def test_the_lifetime_of_a_jwt() -> None:
    token = jwt(iat=1_000, exp=1_600)
    assert read_token(f"{token}\n") == BearerToken(text=token, lifetime_s=600)
    assert read_token_answer(200, json.dumps({"access_token": token}).encode()).lifetime_s == 600


@pytest.mark.parametrize("token", ["abc", "a.b.c", jwt(exp=1), jwt(iat="x", exp="y"), "a.e30.b"])
def test_the_lifetime_of_other_tokens_is_not_known(token: str) -> None:
    assert read_token(token).lifetime_s is None


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            401,
            b'{"error": "invalid_client", "error_description": "bad secret"}',
            "answers 401 invalid_client: bad secret",
        ),
        (500, b"<html>", "answers 500 without a JSON object"),
        (200, b"[]", "answers 200 without a JSON object"),
        (200, b"{}", "no access_token"),
        (200, b'{"access_token": 7}', "no access_token"),
        (200, b'{"access_token": "a\\u0001b"}', "there is no token"),
        (403, b"{}", "answers 403$"),
    ],
)
def test_answers_without_a_token(status: int, body: bytes, message: str) -> None:
    with pytest.raises(TokenRefused, match=message):
        read_token_answer(status, body)


@pytest.mark.parametrize("text", ["", "\n", "a b", "ä", "a\x01b"])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(TokenRefused, match="there is no token"):
        read_token(text)
