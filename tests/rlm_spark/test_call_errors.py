"""Errors of our services, read without grpcio-status, and those of gRPC itself."""

from typing import Any

import grpc
import pytest

from kip405.errors import Busy, Corrupt, ErrorKind, Invalid, NotFound, RemoteStorageError
from rlm.api.calls import Elsewhere, status_of_error
from rlm_spark.tiers.call_errors import failure_of


class Failed(grpc.RpcError):
    """A call that failed with these parts."""

    def __init__(self, code: grpc.StatusCode, text: str, metadata: Any = ()) -> None:
        super().__init__(text)
        self._parts = code, text, metadata

    def code(self) -> grpc.StatusCode:
        return self._parts[0]

    def details(self) -> str:
        return self._parts[1]

    def trailing_metadata(self) -> Any:
        return self._parts[2]


def sent(error: RemoteStorageError) -> Failed:
    return Failed(*status_of_error(error))


@pytest.mark.parametrize("error", [NotFound("no t"), Busy("full"), Corrupt("bad"), Invalid("who?")])
def test_kind_and_words_come_through(error: RemoteStorageError) -> None:
    failure = failure_of(sent(error), "a:1")
    assert (failure.kind, failure.what) == (error.kind, str(error))


def test_the_leader_comes_through() -> None:
    failure = failure_of(sent(Elsewhere("broker 2 leads", "b:2")), "a:1")
    assert (failure.kind, failure.leader_address) == (ErrorKind.FENCED, "b:2")


def test_offsets_are_read_from_the_words_of_invalid_only() -> None:
    below = failure_of(sent(Invalid("t-0: offset 3 is below log_start_offset=12")), "a:1")
    assert (below.log_start_offset, below.high_watermark) == (12, None)
    beyond = failure_of(sent(Invalid("t-0: offset 90 is beyond high_watermark=60")), "a:1")
    assert (beyond.log_start_offset, beyond.high_watermark) == (None, 60)
    assert failure_of(sent(Corrupt("log_start_offset=12")), "a:1").log_start_offset is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ErrorKind.UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorKind.UNAVAILABLE),
        (grpc.StatusCode.UNAUTHENTICATED, ErrorKind.INVALID),
        (grpc.StatusCode.UNIMPLEMENTED, ErrorKind.INVALID),
        (grpc.StatusCode.UNKNOWN, ErrorKind.INTERNAL),
    ],
)
def test_without_a_detail_the_code_decides(code: grpc.StatusCode, kind: ErrorKind) -> None:
    failure = failure_of(Failed(code, "why"), "a:1")
    assert failure.kind is kind
    assert "a:1" in failure.what


@pytest.mark.parametrize("packed", [b"", b"\xff\xff", b"\x1a\x03\x0a\x01x"])
def test_a_detail_that_is_none_is_passed_over(packed: bytes) -> None:
    metadata = (("grpc-status-details-bin", packed),)
    failed = Failed(grpc.StatusCode.UNAVAILABLE, "why", metadata)
    assert failure_of(failed, "a:1").kind is ErrorKind.UNAVAILABLE
