"""`rlm doctor` finds what endangers the data: all checks, or with --store how stores are set up."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kip405.addresses import Address
from kip405.errors import Invalid
from rlm.cli.main import EXIT_WRONG_USE, fail
from rlm.cli.output import plain, show_json, show_table
from rlm.cli.target import Connect, service_options
from rlm.v1 import admin_pb2 as pb

if TYPE_CHECKING:  # the command loads what it needs
    from rlm.config import CommonConfig, ServiceConfig
    from rlm.diagnosis.checks import CheckFinding, Examined
    from rlm.diagnosis.run import Diagnosis


@click.command()
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="YAML file of the service beside a broker: check all that it names.",
)
@click.option(
    "--as-client",
    "as_client",
    metavar="HOST:PORT",
    help="Also check which addresses a client learns that begins here, and that it reaches them.",
)
@click.option(
    "--store",
    "store",
    is_flag=True,
    help="Only show how the stores are set up; with --config without a service.",
)
@service_options
def doctor(*, config: Path | None, as_client: str | None, store: bool, connect: Connect) -> int:
    """Check everything that endangers the data, and say what mends it.

    With --config: log.dirs, broker, listeners, ledger and settings, the other services' heartbeats,
    enabled topics, stores, and this machine. Run it beside the broker, as the service's user:
    it asks with the service's rights, and changes nothing. What could not be asked is named. The
    exit status is 0 if all is sound, 1 if there is an alarm, a warning or a check that could not be
    made, and 2 if the settings cannot be used or the broker does not answer, without which only
    this machine and the stores are checked. What a client learns is checked only with --as-client.
    All checks are listed in docs/reference/checks.md. A reader's file is for --store alone.

    With --store alone a service compares lifecycle rules, versioning and locks of every store with
    the topics in it, so that this machine needs no credentials. The exit status is 1 if there is an
    alarm, or a store that does not answer. With --config too the retention of topics is unknown, so
    any rule that removes objects is an alarm.
    """
    if store:
        return _store_set_up(config, connect)
    if config is None:
        raise Invalid("--config FILE or --store is missing: what is to be checked?")
    found = _diagnosed(config, as_client, connect)
    if connect.as_json:
        show_json(_as_json(found.examined))
    else:
        _show(found.examined)
    if found.no_broker:
        fail(f"the broker cannot be asked: {found.no_broker}", EXIT_WRONG_USE)
    return int(any(one.is_failed for one in found.examined))


def _diagnosed(path: Path, as_client: str | None, connect: Connect) -> "Diagnosis":
    from rlm.clock import SystemClock
    from rlm.diagnosis.run import diagnose
    from rlm.service.lifetime import configure_service_logs

    configure_service_logs(level="error", log_format="console")
    bootstrap = None if as_client is None else _address(as_client)
    asking = diagnose(
        _of_broker(path),
        SystemClock(),
        as_client=bootstrap,
        answer_ms=int(connect.timeout_s * 1000),
    )
    return asyncio.run(asking)


def _of_broker(path: Path) -> "ServiceConfig":
    """Invalid: the settings cannot be used, or are those of a reader."""
    from rlm.config import ServiceConfig

    config = _of_any_role(path)
    if not isinstance(config, ServiceConfig):
        raise Invalid(
            f"{path} is a reader's, and these checks are those of a service beside a broker: `rlm "
            f"config check --role reader --online {path}` asks a reader's brokers and stores, `rlm "
            f"doctor --store --config {path}` shows how its stores are set up"
        )
    return config


def _of_any_role(path: Path) -> "CommonConfig":
    """Invalid, in the words of the service beside a broker: no role can use the settings."""
    from rlm.config import load, load_reader

    try:
        return load(path)
    except Invalid:
        with suppress(Invalid):
            return load_reader(path)
        raise


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except Invalid as error:
        raise Invalid(f"--as-client: must be HOST:PORT, got {error}") from error


def _show(examined: "Sequence[Examined]") -> None:
    show_table(("check", "result"), [(one.check.name, _result(one)) for one in examined], "")
    for one in examined:
        for finding in one.findings:
            click.echo()
            click.echo(f"{finding.severity.value}: {one.check.name}: {_sentence(finding)}")
            click.echo(f"  to mend it: {finding.remedy}")
    unmade = [f"not asked: {one.check.name}: {one.unasked}" for one in examined if one.unasked]
    unmade += [f"not checked: {one.check.name}: {one.unwanted}" for one in examined if one.unwanted]
    if unmade:
        click.echo()
    for line in unmade:
        click.echo(line)


def _sentence(finding: "CheckFinding") -> str:
    return f"{finding.subject}: {finding.text}"


def _result(one: "Examined") -> str:
    if one.unasked:
        return "NOT ASKED"
    if one.unwanted:
        return "not checked"
    counts = Counter(finding.severity.value for finding in one.findings)
    return ", ".join(_counted(counts)) or "sound"


def _counted(counts: "Counter[str]") -> Iterator[str]:
    for word, count in sorted(counts.items()):
        yield f"{count} {word}" + ("s" if count > 1 else "")


def _as_json(examined: "Sequence[Examined]") -> dict[str, Any]:
    """What nobody wanted to know is neither sound nor unsound."""
    return {
        "sound": not any(one.is_failed for one in examined),
        "checks": [
            {
                "check": one.check.name,
                "asks": one.check.asks,
                "sound": None if one.unwanted else one.is_sound,
                "unasked": one.unasked,
                "unwanted": one.unwanted,
                "findings": [
                    {
                        "severity": finding.severity.value,
                        "subject": finding.subject,
                        "text": finding.text,
                        "remedy": finding.remedy,
                    }
                    for finding in one.findings
                ],
            }
            for one in examined
        ],
    }


def _store_set_up(config: Path | None, connect: Connect) -> int:
    answer = _of_config(config) if config is not None else _of_service(connect)
    if connect.as_json:
        show_json(plain(answer))
    else:
        _show_reports(answer.stores)
    return int(any(row.problem or _alarms_of(row) for row in answer.stores))


def _of_service(connect: Connect) -> pb.InspectStoresResponse:
    with connect.open() as target:
        return target.ask(target.admin.InspectStores, pb.InspectStoresRequest())


def _of_config(path: Path) -> pb.InspectStoresResponse:
    from rlm.api.messages import report_message
    from rlm.clock import SystemClock
    from rlm.stores.inspection import inspect_configured

    reports = asyncio.run(inspect_configured(_of_any_role(path), SystemClock()))
    return pb.InspectStoresResponse(stores=[report_message(report) for report in reports])


def _show_reports(stores: Sequence[pb.StoreReport]) -> None:
    if not stores:
        click.echo("no store is configured: nothing is tiered")
    for number, row in enumerate(stores):
        if number:
            click.echo()
        click.echo(f"store {row.name}  {row.uri}".rstrip())
        if row.problem:
            click.echo(f"  NOT ASKED  {row.problem}")
        for verdict in row.verdicts:
            level = verdict.level.upper() if verdict.level == "alarm" else verdict.level
            click.echo(f"  {level:<9}  {verdict.text}")


def _alarms_of(row: pb.StoreReport) -> list[str]:
    return [verdict.text for verdict in row.verdicts if verdict.level == "alarm"]
