"""The sandbox's S3 server: started as it says, ready when it says so, with real signatures."""

from pathlib import Path

import pytest

from rlm_sandbox.spec import SandboxError
from rlm_sandbox.store_servers import versitygw
from tests.store_servers import S3Server


def test_it_answers_and_buckets_are_made_once(s3_server: S3Server) -> None:
    assert versitygw.is_ready(s3_server.port)
    name = s3_server.bucket()
    assert s3_server.bucket(name) == name
    assert (s3_server.folder / "buckets" / name).is_dir()


def test_a_wrong_secret_is_refused(s3_server: S3Server) -> None:
    with pytest.raises(SandboxError, match="SignatureDoesNotMatch"):
        versitygw.create_bucket(s3_server.port, "bucket", s3_server.access_key, "wrong")


def test_a_closed_port_is_not_ready_and_one_line() -> None:
    assert not versitygw.is_ready(9)
    with pytest.raises(SandboxError, match="bucket b cannot be created") as refused:
        versitygw.create_bucket(9, "b", "access", "a-secret-that-nobody-sees")
    assert "\n" not in str(refused.value)
    assert "nobody-sees" not in str(refused.value)


def test_the_command_is_of_this_machine_only(tmp_path: Path) -> None:
    made = versitygw.command(Path("/bin/versitygw"), port=12345, folder=tmp_path)
    assert "127.0.0.1:12345" in made
    assert "--keep-alive" in made
    assert (tmp_path / "buckets").is_dir()
    assert "secret" not in " ".join(made)
