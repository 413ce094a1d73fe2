"""`rsm-plugin conformance ADDRESS`: runs the suite against any plugin, with one line a case.

The command knows of the plugin only what it answers: its capabilities decide which cases and which
ways of transferring bytes are tried. Each case that is left out is shown with the reason.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click
import grpc

from kip405.addresses import Address
from kip405.errors import Invalid, RemoteStorageError
from kip405.ids import Uuid
from kip405.segments import Layout
from rsm_plugins.conformance.runner import (
    CASE_SECONDS,
    CASES,
    WIRE_CASES,
    Outcome,
    Status,
    chosen,
    name_of,
    run_suite,
    summary_of,
)
from rsm_plugins.conformance.subject import MANY_OBJECTS, Subject, Wire
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.contract.probe import LAYOUT_CAPABILITIES, layouts_of
from rsm_plugins.contract.tls import Tls
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1.identity_pb2_grpc import IdentityStub
from rsm_plugins.v1.storage_pb2_grpc import StorageStub

EXIT_FAILED = 1
EXIT_WRONG_USE = 2
_OPTIONAL = {
    "inspect": idpb.CAPABILITY_INSPECT,
    "batch_delete": idpb.CAPABILITY_BATCH_DELETE,
}
_BY_FILE = frozenset((idpb.CAPABILITY_SHARED_VOLUME, idpb.CAPABILITY_SCRATCH))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialled:
    """The address of the plugin, how it is dialled, and which cases run."""

    address: str
    principal: str
    allow_insecure: bool
    tls: Tls | None
    cases: tuple[str, ...]
    many: int
    case_seconds: float
    layout: Layout


@click.command("conformance", short_help="Try the conformance suite on a plugin.")
@click.argument("address", required=False)
@click.option("--list", "only_list", is_flag=True, help="Show the cases and what each is about.")
@click.option("--case", "cases", multiple=True, help="Only this case; may be repeated.")
@click.option(
    "--many",
    default=MANY_OBJECTS,
    show_default=True,
    help="How many objects the cases about many objects use.",
)
@click.option(
    "--layout",
    type=click.Choice([str(one) for one in Layout]),
    default=str(Layout.KAFKA),
    show_default=True,
    help="The layout of every segment; the plugin must name it as a capability.",
)
@click.option("--case-seconds", default=CASE_SECONDS, show_default=True, help="Limit of one case.")
@click.option("--allow-insecure", is_flag=True, help="Dial an address that is not of this machine.")
@click.option("--principal", default="rsm-plugin-conformance", show_default=True)
@click.option(
    "--tls-ca",
    type=click.Path(path_type=Path),
    help="PEM file with the authorities of the plugin's certificate.",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    help="PEM file with the certificate to show to the plugin.",
)
@click.option(
    "--tls-key", type=click.Path(path_type=Path), help="PEM file with the key of that certificate."
)
@click.option("--tls-name", default="", help="Name in the plugin's certificate.")
def conformance_command(
    address: str | None,
    only_list: bool,
    cases: tuple[str, ...],
    many: int,
    layout: str,
    case_seconds: float,
    allow_insecure: bool,
    principal: str,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_name: str,
) -> None:
    """Try the conformance suite on the plugin at ADDRESS (host:port or unix:/path).

    Writes below a cluster id of its own and removes what it wrote; creates the store's identity
    where there is none, so give it a scratch store. One line a case: ok, FAIL or skip, with the
    reason. Exit status 1 when a case fails or the plugin is not reached, 2 for wrong use.
    """
    if only_list:
        _show_cases()
        return
    if address is None:
        _fail("ADDRESS is missing (host:port or unix:/path)", EXIT_WRONG_USE)
    tls = None
    if tls_ca or tls_cert or tls_name:
        tls = Tls(ca_file=tls_ca, cert_file=tls_cert, key_file=tls_key, server_name=tls_name)
    dialled = Dialled(
        address=address,
        principal=principal,
        allow_insecure=allow_insecure,
        tls=tls,
        cases=cases,
        many=many,
        case_seconds=case_seconds,
        layout=Layout.parse(layout),
    )
    try:
        outcomes = asyncio.run(try_plugin(dialled, _show_outcome))
    except Invalid as error:
        _fail(str(error), EXIT_WRONG_USE)
    except RemoteStorageError as error:
        _fail(str(error), EXIT_FAILED)
    count = Counter(outcome.status for outcome in outcomes)
    click.echo(
        f"{count[Status.PASSED]} cases passed, {count[Status.FAILED]} failed, "
        f"{count[Status.SKIPPED]} skipped"
    )
    sys.exit(EXIT_FAILED if count[Status.FAILED] else 0)


async def try_plugin(dialled: Dialled, report: Callable[[Outcome], None]) -> list[Outcome]:
    """Run every case by bytes, again by files if the plugin can, and the cases about streams once.
    Invalid for wrong use, Unavailable if the plugin is not reached.
    """
    outcomes: list[Outcome] = []
    cases = chosen(dialled.cases, CASES)
    of_streams = chosen(dialled.cases, WIRE_CASES)
    async with opened_subject(dialled, share=False) as (subject, capabilities):
        for mode, some in (("bytes", cases), ("wire", of_streams)):
            outcomes += await run_suite(
                subject, mode, some, report=report, case_seconds=dialled.case_seconds
            )
    if not _BY_FILE & capabilities:
        skipped = Outcome(
            mode="files",
            name="all of them",
            status=Status.SKIPPED,
            detail="the plugin names neither SHARED_VOLUME nor SCRATCH as its capability",
        )
        report(skipped)
        return [*outcomes, skipped]
    async with opened_subject(dialled, share=True) as (subject, _):
        outcomes += await run_suite(
            subject, "files", cases, report=report, case_seconds=dialled.case_seconds
        )
    return outcomes


@asynccontextmanager
async def opened_subject(
    dialled: Dialled, *, share: bool
) -> AsyncIterator[tuple[Subject, frozenset[int]]]:
    """The subject of the cases, and the capabilities that the plugin names. Invalid: not that of
    the layout, so it would refuse every copy.
    """
    with tempfile.TemporaryDirectory(prefix="rsm-conformance-") as folder:
        async with _manager(dialled, share=share) as manager, _wire(dialled) as wire:
            info = await manager.get_info()
            if dialled.layout not in layouts_of(info):
                needed = LAYOUT_CAPABILITIES[dialled.layout].name
                raise Invalid(
                    f"--layout {dialled.layout}: the plugin does not name {needed} as its "
                    "capability"
                )
            capabilities = frozenset(info.capabilities)
            subject = Subject(
                manager=manager,
                folder=Path(folder),
                new_uuid=_new_uuid,
                cluster_id="conformance",
                wire=wire,
                lacking=lacking(capabilities),
                many=dialled.many,
                layout=dialled.layout,
            )
            yield subject, capabilities


def lacking(capabilities: Collection[int]) -> dict[str, str]:
    """The value of Subject.lacking, from the capabilities in the answer to GetInfo."""
    return {
        name: f"the plugin does not name {name.upper()} as its capability"
        for name, capability in _OPTIONAL.items()
        if capability not in capabilities
    }


@asynccontextmanager
async def _manager(dialled: Dialled, *, share: bool) -> AsyncIterator[GrpcRemoteStorageManager]:
    manager = GrpcRemoteStorageManager.connect(
        dialled.address,
        principal=dialled.principal,
        deadlines=Deadlines(),
        allow_insecure=dialled.allow_insecure,
        tls=dialled.tls,
        share=share,
    )
    try:
        yield manager
    finally:
        await manager.close()


@asynccontextmanager
async def _wire(dialled: Dialled) -> AsyncIterator[Wire]:
    """A channel without our client's limits, because the plugin must refuse what is too large."""
    target = str(Address.parse(dialled.address))
    options: list[tuple[str, object]] = [("grpc.enable_http_proxy", 0)]
    if dialled.tls is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        options += dialled.tls.options
        channel = grpc.aio.secure_channel(target, dialled.tls.credentials(), options=options)
    async with channel:
        yield Wire(
            identity=IdentityStub(channel),
            storage=StorageStub(channel),
            principal=dialled.principal,
        )


def _new_uuid() -> Uuid:
    return Uuid(os.urandom(16))


def _show_cases() -> None:
    for case in (*CASES, *WIRE_CASES):
        click.echo(f"{name_of(case)}: {summary_of(case)}")


def _show_outcome(outcome: Outcome) -> None:
    detail = f": {outcome.detail}" if outcome.detail else ""
    click.echo(
        f"{outcome.status.value:4} {outcome.mode:6} {outcome.name} "
        f"({outcome.seconds:.2f} s){detail}"
    )


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"rsm-plugin: {message}", err=True)
    sys.exit(status)
