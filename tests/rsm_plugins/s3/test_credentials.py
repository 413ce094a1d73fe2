"""Where the S3 store's credentials come from, as the requests show that reach the server."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from rsm_plugins.s3.calls import Connection
from rsm_plugins.s3.settings import S3Settings
from tests.rsm_plugins.s3.recording import Answer, Asked, failed, recording_server, xml
from tests.rsm_plugins.s3.stores import open_store

SECRET = "a-secret-that-nobody-sees"
NOTHING = failed(404, "NoSuchKey")
EXPIRES = "2999-01-01T00:00:00Z"


async def nothing(_: Asked) -> Answer:
    return NOTHING


def key_of(asked: Asked) -> str:
    """The access key that a request was signed with."""
    return asked.headers["authorization"].partition("Credential=")[2].partition("/")[0]


def write_file(path: Path, key: str, *, token: str = "", profile: str = "default") -> None:
    text = f"[{profile}]\naws_access_key_id={key}\naws_secret_access_key={SECRET}\n"
    new = path.with_suffix(".new")
    new.write_text(text + (f"aws_session_token={token}\n" if token else ""))
    new.replace(path)


def sts(action: str, key: str) -> Answer:
    return xml(
        f"<{action}Response><{action}Result><Credentials><AccessKeyId>{key}</AccessKeyId>"
        f"<SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>role-token</SessionToken>"
        f"<Expiration>{EXPIRES}</Expiration></Credentials></{action}Result></{action}Response>"
    )


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


async def test_given_credentials_with_a_token() -> None:
    given = {
        "aws_access_key_id": "given",
        "aws_secret_access_key": SECRET,
        "aws_session_token": "given-token",
    }
    async with (
        recording_server(nothing) as server,
        open_store(server.settings(**given)) as store,
    ):
        assert await store.read_identity() is None
        (asked,) = server.asked
        assert key_of(asked) == "given"
        assert asked.headers["x-amz-security-token"] == "given-token"
        assert "/eu-test-1/s3/aws4_request" in asked.headers["authorization"]


async def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    write_file(path, "first", profile="copies")
    settings = {"aws_credentials_file": str(path), "aws_profile": "copies"}
    async with (
        recording_server(nothing) as server,
        open_store(server.settings(**settings)) as store,
    ):
        await store.read_identity()
        write_file(path, "second", token="second-token", profile="copies")
        await store.read_identity()
        path.write_text("[copies\nhalf of a file")
        await store.read_identity()
        path.unlink()
        await store.read_identity()
        write_file(path, "third", profile="copies")
        await store.read_identity()
        assert [key_of(one) for one in server.asked] == [
            "first",
            "second",
            "second",
            "second",
            "third",
        ]
        tokens = [one.headers.get("x-amz-security-token") for one in server.asked]
        assert tokens == [None, "second-token", "second-token", "second-token", None]


async def test_expired_credentials_are_read_again_before_giving_up(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    write_file(path, "old")

    async def answer(asked: Asked) -> Answer:
        if key_of(asked) == "old":
            write_file(path, "new")
            return failed(400, "ExpiredToken", SECRET)
        return NOTHING

    async with (
        recording_server(answer) as server,
        open_store(server.settings(aws_credentials_file=str(path))) as store,
    ):
        assert await store.read_identity() is None
        assert [key_of(one) for one in server.asked] == ["old", "new"]


async def test_a_file_that_cannot_be_used_names_itself_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(f"[default]\naws_secret_access_key={SECRET}\n")
    async with (
        recording_server(nothing) as server,
        open_store(server.settings(aws_credentials_file=str(path))) as store,
    ):
        with pytest.raises(Unavailable, match="CredentialRetrievalError") as refused:
            await store.read_identity()
        assert SECRET not in str(refused.value) + str(refused.value.__cause__)
        assert str(path) in str(refused.value.__cause__)
        assert server.asked == []


async def test_no_credentials_at_all() -> None:
    async with recording_server(nothing) as server, open_store(server.settings()) as store:
        with pytest.raises(Unavailable, match=r"rsm\.config\.aws"):
            await store.read_identity()
        assert server.asked == []


async def test_a_role_assumed_with_given_credentials() -> None:
    async def answer(asked: Asked) -> Answer:
        return sts("AssumeRole", "role-key") if asked.method == "POST" else NOTHING

    async with recording_server(answer) as server:
        settings = server.settings(
            aws_access_key_id="given",
            aws_secret_access_key=SECRET,
            aws_role_arn="arn:aws:iam::1:role/copies",
            aws_role_session_name="me",
            aws_role_external_id="external",
            aws_sts_endpoint_url=server.url,
        )
        async with open_store(settings) as store:
            await store.read_identity()
            await store.read_identity()
        assume, *rest = server.asked
        assert key_of(assume) == "given"
        assert assume.form["Action"] == "AssumeRole"
        assert assume.form["RoleArn"] == "arn:aws:iam::1:role/copies"
        assert (assume.form["RoleSessionName"], assume.form["ExternalId"]) == ("me", "external")
        assert [key_of(one) for one in rest] == ["role-key", "role-key"]
        assert {one.headers["x-amz-security-token"] for one in rest} == {"role-token"}


async def test_a_role_assumed_with_a_web_identity(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-jwt")

    async def answer(asked: Asked) -> Answer:
        return sts("AssumeRoleWithWebIdentity", "web-key") if asked.method == "POST" else NOTHING

    async with recording_server(answer) as server:
        settings = server.settings(
            aws_role_arn="arn:aws:iam::1:role/copies",
            aws_web_identity_token_file=str(token),
            aws_sts_endpoint_url=server.url,
        )
        async with open_store(settings) as store:
            await store.read_identity()
        assume, read = server.asked
        assert assume.form["Action"] == "AssumeRoleWithWebIdentity"
        assert assume.form["WebIdentityToken"] == "a-jwt"
        assert "authorization" not in assume.headers
        assert key_of(read) == "web-key"


async def test_a_role_that_is_refused_names_the_permission(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(0)

    async def answer(_: Asked) -> Answer:
        return failed(403, "AccessDenied", SECRET)

    async with recording_server(answer) as server:
        settings = server.settings(
            aws_access_key_id="given",
            aws_secret_access_key=SECRET,
            aws_role_arn="arn:aws:iam::1:role/copies",
            aws_sts_endpoint_url=server.url,
        )
        async with open_store(settings) as store:
            with pytest.raises(Unavailable, match=r"AssumeRole .*sts:AssumeRole") as refused:
                await store.read_identity()
    assert SECRET not in str(refused.value) + caplog.text


async def test_credentials_that_do_not_come_are_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One caller without a deadline (the sweep) would keep all the others from asking again."""
    gate, given = tmp_path / "gate", '{"Version":1,"AccessKeyId":"k","SecretAccessKey":"s"}'
    script = tmp_path / "process.py"
    script.write_text(
        "import os, sys, time\n"
        f"while not os.path.exists({str(gate)!r}) and os.getppid() == {os.getpid()}:\n"
        f"    time.sleep(0.05)\nprint({given!r})\n"
    )
    (tmp_path / "config").write_text(
        f"[default]\ncredential_process = {shlex.join([sys.executable, str(script)])}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    connection = Connection(S3Settings(bucket="bucket"), open_seconds=0.5)
    with pytest.raises(TimeoutError):
        await connection.client()
    gate.touch()
    patient = Connection(S3Settings(bucket="bucket"))
    assert await patient.client() is not None
    for one in (connection, patient):
        await one.close()
