"""The table that turns what S3 says into what the caller must do."""

import aiohttp
import pytest
from botocore import exceptions as boto

from kip405.errors import Internal, Invalid, NotFound, RemoteStorageError, Unavailable
from rsm_plugins.s3.errors import BY_CODE, error_of_s3, verdict_of, verdict_of_code

ECHO = "what the server wrote back"


def refused(code: str, status: int, operation: str = "GetObject") -> boto.ClientError:
    answer = {
        "Error": {"Code": code, "Message": ECHO},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return boto.ClientError(answer, operation)


@pytest.mark.parametrize(
    ("code", "status", "kind", "tried_again"),
    [
        ("NoSuchKey", 404, NotFound, False),
        ("404", 404, Unavailable, False),
        ("SomethingNew", 404, Unavailable, False),
        ("NoSuchBucket", 404, Unavailable, False),
        ("NoSuchUpload", 404, Unavailable, False),
        ("AccessDenied", 403, Unavailable, False),
        ("403", 403, Unavailable, False),
        ("InvalidAccessKeyId", 403, Unavailable, False),
        ("SignatureDoesNotMatch", 403, Unavailable, False),
        ("ExpiredToken", 400, Unavailable, True),
        ("SlowDown", 503, Unavailable, True),
        ("InternalError", 500, Unavailable, True),
        ("SomethingNew", 502, Unavailable, True),
        ("SomethingNew", 429, Unavailable, True),
        ("BadDigest", 400, Unavailable, True),
        ("SomethingNew", 400, Invalid, False),
        ("NotImplemented", 501, Invalid, False),
        ("PermanentRedirect", 301, Invalid, False),
        ("KMS.DisabledException", 400, Unavailable, False),
        ("InvalidObjectState", 403, Unavailable, False),
    ],
)
def test_answers(code: str, status: int, kind: type[RemoteStorageError], tried_again: bool) -> None:
    error = refused(code, status)
    made = error_of_s3(error, "GetObject", "s3://bucket/key")
    assert type(made) is kind
    assert "s3://bucket/key" in str(made)
    assert code in str(made)
    assert ECHO not in str(made)
    assert (verdict_of(error).tries > 1) is tried_again


@pytest.mark.parametrize(
    ("error", "kind", "tried_again"),
    [
        (boto.EndpointConnectionError(endpoint_url="http://x"), Unavailable, True),
        (boto.ReadTimeoutError(endpoint_url="http://x"), Unavailable, True),
        (boto.ConnectionClosedError(endpoint_url="http://x"), Unavailable, True),
        (boto.ResponseStreamingError(error="cut"), Unavailable, True),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), Unavailable, True),
        (boto.SSLError(endpoint_url="http://x", error="expired"), Unavailable, False),
        (boto.NoCredentialsError(), Unavailable, False),
        (boto.ParamValidationError(report="bad"), Internal, False),
        (aiohttp.ClientPayloadError(), Unavailable, True),
        (TimeoutError(), Unavailable, True),
        (TimeoutError(), Unavailable, True),
        (ConnectionResetError(), Unavailable, True),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_errors_on_the_way(
    error: Exception, kind: type[RemoteStorageError], tried_again: bool
) -> None:
    assert type(error_of_s3(error, "PutObject", "s3://bucket/key")) is kind
    assert (verdict_of(error).tries > 1) is tried_again


def test_a_refusal_names_the_permission() -> None:
    denied = str(error_of_s3(refused("AccessDenied", 403), "GetObject", "s3://bucket/key"))
    assert "s3:GetObject" in denied
    assert "s3:ListBucket" in denied
    role = refused("AccessDenied", 403, "AssumeRole")
    assert "sts:AssumeRole" in str(error_of_s3(role, "GetObject", "s3://bucket/key"))


def test_h11_only_a_head_may_miss_an_object_without_saying_so() -> None:
    head = error_of_s3(refused("404", 404, "HeadObject"), "HeadObject", "s3://bucket/key")
    assert type(head) is NotFound
    listing = error_of_s3(refused("404", 404, "ListObjectsV2"), "ListObjectsV2", "s3://bucket/key")
    assert type(listing) is Unavailable


def test_a_bucket_that_is_away_is_never_a_missing_object() -> None:
    assert BY_CODE["NoSuchBucket"].kind is not BY_CODE["NoSuchKey"].kind
    assert verdict_of_code("", 500).kind.retriable
