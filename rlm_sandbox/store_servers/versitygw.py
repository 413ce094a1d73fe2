"""versitygw: an S3 server over a folder, with real signatures, conditions and checksums.

The folder's subdirectories are its buckets. Keep-alive is on: without it every request of a client
pays for a new connection. Source: github.com/versity/versitygw (Apache-2.0).
"""

import http.client
import os
from collections.abc import Mapping
from pathlib import Path

from rlm_sandbox.kafka_dist import cache_dir
from rlm_sandbox.maven import Progress
from rlm_sandbox.readiness import http_status
from rlm_sandbox.spec import VERSITYGW_MODULE, VERSITYGW_VERSION, SandboxError
from rlm_sandbox.store_servers.go_tools import go_binary

REGION = "us-east-1"
_HEALTH = "/health"
_LOOPBACK = "127.0.0.1"
_OBJECTS = "buckets"
_VERSIONS = "versions"
_SIDECAR = "metadata"


def resolve(progress: Progress, environ: Mapping[str, str] = os.environ) -> Path:
    """The binary, built where the cache has it not; SandboxError with one line."""
    return go_binary(VERSITYGW_MODULE, VERSITYGW_VERSION, "versitygw", cache_dir(environ), progress)


def command(binary: Path, *, port: int, folder: Path) -> list[str]:
    """Argument vector of a server on a loopback port that keeps everything below `folder`.

    Creates what it needs there. Object metadata lies in extended attributes, or in files beside
    where the file system has none.
    """
    objects, versions, sidecar = (folder / name for name in (_OBJECTS, _VERSIONS, _SIDECAR))
    for needed in (objects, versions):
        needed.mkdir(parents=True, exist_ok=True)
    options = [] if _has_attributes(objects) else ["--sidecar", str(sidecar)]
    if options:
        sidecar.mkdir(exist_ok=True)
    return [
        str(binary),
        *("--port", f"{_LOOPBACK}:{port}", "--region", REGION, "--health", _HEALTH),
        *("--keep-alive", "--quiet"),
        *("posix", "--versioning-dir", str(versions), *options, str(objects)),
    ]


def environ(access_key: str, secret_key: str) -> dict[str, str]:
    """Additions to the server's environment: the credentials of its one account."""
    return {"ROOT_ACCESS_KEY_ID": access_key, "ROOT_SECRET_ACCESS_KEY": secret_key}


def endpoint(port: int) -> str:
    return f"http://{_LOOPBACK}:{port}"


def is_ready(port: int) -> bool:
    """Whether the server answers now; never waits longer than a second."""
    return http_status(port, _HEALTH) == http.client.OK


def create_bucket(port: int, bucket: str, access_key: str, secret_key: str) -> None:
    """Create the bucket where it is not there yet; SandboxError where the server refuses."""
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
    except ImportError:
        raise SandboxError("the S3 store needs: pip install 'kafka-rlm[s3]'") from None
    config = Config(
        s3={"addressing_style": "path"},
        signature_version="s3v4",
        retries={"total_max_attempts": 2},
    )
    client = Session().create_client(
        "s3",
        region_name=REGION,
        endpoint_url=endpoint(port),
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=config,
    )
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
            raise SandboxError(f"bucket {bucket} cannot be created: {code}") from error
    except BotoCoreError as error:
        raise SandboxError(f"bucket {bucket} cannot be created: {error}") from error
    finally:
        client.close()


def _has_attributes(folder: Path) -> bool:
    set_attribute = getattr(os, "setxattr", None)
    if set_attribute is None:
        return False
    try:
        set_attribute(folder, "user.rlm-probe", b"1")
        os.removexattr(folder, "user.rlm-probe")
    except OSError:
        return False
    return True
