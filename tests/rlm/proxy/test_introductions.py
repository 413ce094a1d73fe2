"""What requests say of their client while they pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.apis import API_VERSIONS
from kafka_protocol.frames import encode_request
from kafka_protocol.primitives import Writer
from rlm.proxy.introductions import Introduction, introduces, introduction

GROUP_KEYS = {8: range(2, 11), 11: range(10), 68: range(2), 88: range(1)}
FLEXIBLE = {8: 8, 11: 6, 68: 0, 88: 0}


def of_group(
    api_key: int, version: int, group: str, client_id: str | None = "c-1", rest: bytes = b"\0" * 40
) -> bytes:
    writer = Writer(what="a request")
    writer.int16(api_key)
    writer.int16(version)
    writer.int32(7)
    writer.nullable_string(client_id)
    if version >= FLEXIBLE[api_key]:
        writer.raw(b"\0")
        writer.compact_nullable_string(group)
    else:
        writer.nullable_string(group)
    return bytes(writer.buffer) + rest


def of_versions(
    version: int, name: str = "kcat", number: str = "1.7", client_id: str = "c"
) -> bytes:
    body = {"client_software_name": name, "client_software_version": number}
    return encode_request(API_VERSIONS, version, 7, client_id, body)[4:]


@pytest.mark.parametrize("version", range(6))
def test_software_is_said_since_v3(version: int) -> None:
    found = introduction(of_versions(version))
    assert found == Introduction(client_id="c", software="kcat 1.7" if version >= 3 else "")


@pytest.mark.parametrize(
    ("api_key", "version"), [(key, one) for key, all_of in GROUP_KEYS.items() for one in all_of]
)
def test_the_group_is_the_first_field_in_every_version(api_key: int, version: int) -> None:
    assert introduces(api_key)
    frame = of_group(api_key, version, "billing")
    assert introduction(frame) == Introduction(client_id="c-1", group="billing")
    assert introduction(frame[:40]) == Introduction(client_id="c-1", group="billing")
    no_name = introduction(of_group(api_key, version, "billing", None))
    assert no_name == Introduction(group="billing")


@pytest.mark.parametrize("name", ["a\nb", "x" * 250, "\x1b[2J"])
def test_what_must_not_be_logged_is_not_said(name: str) -> None:
    assert introduction(of_group(11, 9, name)) == Introduction(client_id="c-1")
    assert introduction(of_group(11, 9, "g", name)) == Introduction(group="g")
    assert introduction(of_versions(3, name)) == Introduction(client_id="c")


@given(st.sampled_from((8, 11, 18, 68, 88)), st.integers(0, 20), st.binary(max_size=80))
def test_bytes_of_any_kind_say_something_or_nothing(
    api_key: int, version: int, rest: bytes
) -> None:
    frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + rest
    found = introduction(frame)
    assert found is None or all(
        one.isprintable() for one in (found.client_id, found.software, found.group)
    )


def test_most_requests_say_nothing() -> None:
    assert not any(introduces(key) for key in (0, 1, 2, 3, 12, 17, 36))
