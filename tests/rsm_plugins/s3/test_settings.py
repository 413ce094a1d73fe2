"""The settings that the S3 store accepts, and those that it refuses."""

from pathlib import Path

import pytest

from kip405.errors import Invalid
from rsm_plugins.s3.settings import SETTINGS, S3Settings, s3_settings
from rsm_plugins.store_kinds import store_kind

SECRET = "a-secret-that-nobody-sees"
BUCKET = {"rsm.config.s3.bucket.name": "bucket"}


def read(**more: object) -> S3Settings:
    rows = BUCKET | {f"rsm.config.{key.replace('_', '.')}": more[key] for key in more}
    return s3_settings(SETTINGS.values(rows))


def test_the_kind_is_found_by_name() -> None:
    assert store_kind("s3").settings is SETTINGS
    assert len({row.key for row in SETTINGS}) == len(SETTINGS)


def test_defaults() -> None:
    settings = read()
    assert (settings.prefix, settings.path_style, settings.endpoint) == ("", False, None)
    assert (settings.part_size_bytes, settings.upload_concurrency) == (16 << 20, 8)
    assert settings.uri == "s3://bucket"
    there = read(prefix="a/b", s3_endpoint_url="https://example.test/")
    assert there.uri == "s3://bucket/a/b?endpoint=https://example.test"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"aws_access_key_id": "x"}, "belong together"),
        ({"aws_secret_access_key": SECRET}, "belong together"),
        ({"aws_session_token": SECRET}, "needs rsm.config.aws.access.key.id"),
        ({"aws_web_identity_token_file": "/token"}, "needs rsm.config.aws.role.arn"),
        ({"aws_role_external_id": SECRET}, "needs rsm.config.aws.role.arn"),
        ({"s3_sse_kms_key_id": "key"}, "needs rsm.config.s3.sse.type"),
        ({"s3_upload_concurrency": 8, "s3_max_connections": 8}, "reads need connections too"),
        ({"s3_api_call_timeout": 1000}, "must not be more than"),
        ({"s3_endpoint_url": "ftp://x"}, "s3.endpoint.url"),
        ({"s3_endpoint_url": "http://user:pw@host"}, "s3.endpoint.url"),
        ({"s3_storage_class": "DEEP_ARCHIVE"}, "s3.storage.class"),
        ({"s3_multipart_upload_part_size": 1024}, "5242880"),
        ({"s3_bucket_name": "a/b"}, "s3.bucket.name"),
    ],
)
def test_refusals_name_the_setting_and_no_secret(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(Invalid, match=named) as refused:
        read(**wrong)
    assert SECRET not in str(refused.value)


def test_static_credentials_and_a_file_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="not both"):
        read(
            aws_access_key_id="x",
            aws_secret_access_key=SECRET,
            aws_credentials_file=str(tmp_path / "credentials"),
        )


def test_secrets_are_marked_and_never_shown() -> None:
    secret = {row.key.removeprefix("rsm.config.aws.") for row in SETTINGS if row.secret}
    assert secret == {"secret.access.key", "session.token", "role.external.id"}
    settings = read(
        aws_access_key_id="x",
        aws_secret_access_key=SECRET,
        aws_session_token=SECRET,
        aws_role_arn="arn:role",
        aws_role_external_id=SECRET,
    )
    assert SECRET not in repr(settings)
    assert SECRET not in settings.uri
