"""A request in the tables of `kafka_protocol` that aiokafka's connection sends.

aiokafka's own classes lack newer versions, and show their values in its log. This module must not
know any single API.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Generic, TypeVar

from aiokafka.errors import IncompatibleBrokerVersion

from kafka_protocol.frames import encode_request_header, parse_response_header
from kafka_protocol.schema import Api, encode

T = TypeVar("T")


class BrokerRequest(Generic[T]):
    """One request. aiokafka's connection sends it in the first of `versions` that the broker has.

    `read` makes the answer from the response's frame and version, or raises WireError.
    """

    def __init__(
        self,
        api: Api,
        versions: Sequence[int],
        value: Mapping[str, Any],
        read: Callable[[bytes, int], T],
    ) -> None:
        self._api = api
        self._versions = versions
        self._value = value
        self._read = read

    def prepare(self, offered: Mapping[int, tuple[int, int]]) -> "_VersionedRequest[T]":
        """The request in one version. IncompatibleBrokerVersion where the broker has none."""
        low, high = offered.get(self._api.key, (0, -1))
        version = next((one for one in self._versions if low <= one <= high), None)
        if version is None:
            raise IncompatibleBrokerVersion(
                f"the broker has {self._api.name} v{low} to v{high}, and none of {self._versions}"
            )
        return _VersionedRequest(self._api, version, self._value, self._read)


@dataclass(frozen=True, slots=True)
class _RequestHeader:
    encoded: bytes

    def encode(self) -> bytes:
        return self.encoded


@dataclass(frozen=True, slots=True)
class _ResponseHeader:
    correlation_id: int


class _VersionedRequest(Generic[T]):
    """The part of aiokafka's RequestStruct and Response that its connection uses."""

    def __init__(
        self, api: Api, version: int, value: Mapping[str, Any], read: Callable[[bytes, int], T]
    ) -> None:
        self._api = api
        self._version = version
        self._value = value
        self._read = read

    def build_request_header(self, correlation_id: int, client_id: str) -> _RequestHeader:
        return _RequestHeader(
            encode_request_header(self._api, self._version, correlation_id, client_id)
        )

    def encode(self) -> bytes:
        return encode(self._api.request, self._version, self._value)

    def parse_response_header(self, frame: BytesIO) -> _ResponseHeader:
        # `getvalue` of a BytesIO without writes is the bytes themselves, not a copy.
        return _ResponseHeader(parse_response_header(frame.getvalue(), self._api, self._version)[0])

    @property
    def RESPONSE_TYPE(self) -> "_VersionedRequest[T]":
        return self

    def decode(self, frame: BytesIO) -> T:
        return self._read(frame.getvalue(), self._version)
