"""`rlm diagnose` writes an archive of what helps to find a fault, for those who were not there."""

import io
import json
import os
import platform
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import grpc

from kip405.errors import Invalid
from kip405.process import software_version
from rlm.cli.main import EXIT_FAILED
from rlm.cli.output import human_time, plain, show_json
from rlm.cli.target import Connect, Target, error_of_answer, service_options
from rlm.clock import SystemClock
from rlm.v1 import admin_pb2 as pb

A = TypeVar("A")
_NAME = re.compile(r"[a-z0-9.-]+")


@click.command()
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="The archive, which must not exist.  [default: rlm-diagnosis-TIME.tar.gz]",
)
@service_options
def diagnose(*, output: Path | None, connect: Connect) -> int:
    """Write an archive (tar.gz) of what helps to find a fault; nothing is changed.

    Of the cluster: status with problems, and the last events. Of each service: versions, settings,
    problems, metrics, a summary of the ledger, and names and sizes of the files in log.dirs. There
    is no record data in it, and secrets are masked; names of topics, hosts and files are in it. The
    exit status is 1 where something could not be had: errors.json says what.
    """
    clock = SystemClock()
    at_ms = clock.now_ms()
    stamp = re.sub(r"[^0-9]", "", human_time(at_ms))
    path = output or Path(f"rlm-diagnosis-{stamp}.tar.gz")
    with connect.open() as target:
        files, errors = _collected(target)
    files["about.json"] = _json(
        {
            "taken_at": human_time(at_ms),
            "asked": target.address,
            "kafka-rlm": software_version(),
            "python": platform.python_version(),
        }
    )
    files["errors.json"] = _json(errors)
    _write(path, files, at_ms)
    if connect.as_json:
        show_json({"path": str(path), "files": sorted(files), "errors": errors})
    else:
        click.echo(f"{path}: {len(files)} files, {path.stat().st_size} bytes")
        for error in errors:
            click.echo(f"warning: not in it: {error}", err=True)
    return EXIT_FAILED if errors else 0


def _collected(target: Target) -> tuple[dict[str, bytes], list[str]]:
    """Files by name, and what could not be had: half of it helps, too."""
    files: dict[str, bytes] = {}
    errors: list[str] = []

    def asked(what: str, call: Callable[[], A]) -> A | None:
        try:
            return call()
        except grpc.RpcError as failed:
            errors.append(f"{what}: {error_of_answer(failed, target.address)}")
            return None

    admin = target.admin
    status = asked("status", lambda: target.ask(admin.Status, pb.StatusRequest(mask_secrets=True)))
    if status is not None:
        files["status.json"] = _json(plain(status))
    last = pb.ListEventsRequest(mask_secrets=True)
    events = asked("events", lambda: target.ask(admin.ListEvents, last))
    if events is not None:
        files["events.json"] = _json(plain(events))
    found = asked("services", lambda: target.ask(admin.Diagnose, pb.DiagnoseRequest()))
    for one in [] if found is None else found.services:
        if one.problem:
            errors.append(f"the service of broker {one.node_id}: {one.problem}")
        for name, content in one.documents.items():
            files[f"service-{one.node_id}/{_checked(name)}"] = content
    return files, errors


def _checked(name: str) -> str:
    """A name of a file that stays in its folder."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise Invalid(f"the service names a document {name!r}")
    return name


def _write(path: Path, files: Mapping[str, bytes], at_ms: int) -> None:
    """For its owner alone; Invalid where there is such a file, or it cannot be written."""
    folder = path.name.removesuffix(".tar.gz")
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in sorted(files.items()):
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime, member.mode = len(content), at_ms // 1_000, 0o600
                archive.addfile(member, io.BytesIO(content))
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from error


def _json(content: Any) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode()
