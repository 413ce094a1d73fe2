"""Real storage servers for tests: session-wide, on free loopback ports, gone when the tests are."""

import functools
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.session import Session

from rlm_sandbox.ports import PortReservation
from rlm_sandbox.store_servers import versitygw as gateway

_READY_SECONDS = 60
_ACCESS_KEY = "rlm-test-access"
_SECRET_KEY = "rlm-test-secret"
SERVICE, READER = "rlm-test-service", "rlm-test-reader"
"""Further accounts of the server, which may do what the policy of a bucket allows them."""
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A versitygw of ours; `folder/buckets/BUCKET/KEY` are the objects as files."""

    port: int
    folder: Path
    process_id: int
    access_key: str = _ACCESS_KEY
    secret_key: str = _SECRET_KEY
    region: str = gateway.REGION

    @property
    def endpoint(self) -> str:
        return gateway.endpoint(self.port)

    def bucket(self, name: str = "") -> str:
        """A bucket that exists; without a name a fresh one."""
        made = name or f"bucket-{next(_numbers)}"
        gateway.create_bucket(self.port, made, self.access_key, self.secret_key)
        return made

    def as_account(self, name: str) -> "S3Server":
        """The server as another account sees it."""
        return replace(self, access_key=name, secret_key=_secret_of(name))

    def put_policy(self, bucket: str, policy: Mapping[str, Any]) -> None:
        """Let the accounts that a policy names do what it says, and nobody else anything."""
        client = _client(self.endpoint, self.access_key, self.secret_key)
        client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))

    def enable_versioning(self, bucket: str) -> None:
        """Every put of an object in the bucket makes a version of it from now on."""
        self.set_versioning(bucket, "Enabled")

    def set_versioning(self, bucket: str, status: str) -> None:
        """Enabled or Suspended."""
        client = _client(self.endpoint, self.access_key, self.secret_key)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})

    def settings(self, bucket: str) -> dict[str, object]:
        """The `rsm.config.*` rows that lead a plugin here."""
        return {
            "rsm.config.s3.bucket.name": bucket,
            "rsm.config.s3.region": self.region,
            "rsm.config.s3.endpoint.url": self.endpoint,
            "rsm.config.s3.path.style.access.enabled": True,
            "rsm.config.aws.access.key.id": self.access_key,
            "rsm.config.aws.secret.access.key": self.secret_key,
        }


@contextmanager
def versitygw(folder: Path) -> Iterator[S3Server]:
    """A server that answers, over a folder of its own."""
    binary = gateway.resolve(print)
    with PortReservation() as ports:
        port = ports.take()
    command = gateway.command(binary, port=port, folder=folder)
    accounts = {"VGW_IAM_DIR": str(_accounts(folder / "accounts"))}
    environ = {**os.environ, **gateway.environ(_ACCESS_KEY, _SECRET_KEY), **accounts}
    with (
        (folder / "versitygw.log").open("wb") as log,
        subprocess.Popen(command, env=environ, stdout=log, stderr=log) as process,
    ):
        try:
            _wait(port, process, folder)
            yield S3Server(port=port, folder=folder, process_id=process.pid)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for the whole session: use a bucket of your own (`s3_server.bucket()`)."""
    with versitygw(tmp_path_factory.mktemp("s3")) as server:
        yield server


@functools.cache
def _client(endpoint: str, access_key: str, secret_key: str) -> Any:
    """One client for all tests: to make one takes longer than most of its calls."""
    return Session().create_client(
        "s3",
        region_name=gateway.REGION,
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(s3={"addressing_style": "path"}),
    )


def _secret_of(account: str) -> str:
    return f"{account}-secret"


def _accounts(folder: Path) -> Path:
    """The folder where the server finds its accounts (auth.IAMServiceInternal of versitygw)."""
    rows = {
        name: {"access": name, "secret": _secret_of(name), "role": "user"}
        for name in (SERVICE, READER)
    }
    folder.mkdir()
    (folder / "users.json").write_text(json.dumps({"accessAccounts": rows}))
    return folder


def _wait(port: int, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not gateway.is_ready(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError((folder / "versitygw.log").read_text())
        time.sleep(0.02)
