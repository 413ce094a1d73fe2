"""`rlm fetch`: records of a partition from both tiers or from the remote one, one line each."""

import json
from collections.abc import Iterator
from itertools import islice

import click

from kip405.errors import Elsewhere, Invalid
from kip405.records import Record
from rlm.cli.output import Wanted, human_time, user_records
from rlm.cli.partitions import partition_option
from rlm.cli.target import Connect, Target, service_options
from rlm.v1 import fetch_pb2 as pb

_NAMED = {"earliest": -2, "latest": -1}
_MAX_SHOWN_BYTES = 200
_MAX_MOVES = 5


@click.command()
@click.argument("topic")
@partition_option
@click.option("-o", "--offset", "start", required=True, help="A number, earliest or latest.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Records to print; 0 = all there are.",
)
@click.option("--uncommitted", is_flag=True, help="Also records of open and aborted transactions.")
@click.option("--remote-only", is_flag=True, help="Only the remote tier; a reader has no other.")
@service_options
def fetch(
    *,
    topic: str,
    partition: int,
    start: str,
    count: int,
    uncommitted: bool,
    remote_only: bool,
    connect: Connect,
) -> None:
    """Print records of a partition of TOPIC: tier, offset, time, key, value, headers.

    With --json each line is a JSON object; keys and values that are not UTF-8 are hexadecimal.
    """
    level = pb.READ_UNCOMMITTED if uncommitted else pb.READ_COMMITTED
    request = pb.FetchRequest(
        topic=pb.TopicRef(name=topic),
        partition=partition,
        start_offset=_offset(start),
        isolation_level=level,
        tiers=pb.REMOTE_ONLY if remote_only else pb.ALL_TIERS,
    )
    found = _at_leader(connect, request, _NAMED.get(start))
    is_empty = True
    for tier, record in islice(found, count or None):
        is_empty = False
        click.echo(_json_line(tier, record) if connect.as_json else _line(tier, record))
    if is_empty:
        where = "in the remote tier, " if remote_only else ""
        click.echo(f"rlm: no record {where}from offset {request.start_offset} on", err=True)


def _offset(text: str) -> int:
    if text in _NAMED:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise Invalid(f"--offset: must be a number, earliest or latest, got {text!r}")
    return int(text)


def _at_leader(
    connect: Connect, request: pb.FetchRequest, special: int | None
) -> Iterator[tuple[str, Record]]:
    """Records from whichever service leads; follows it when it moves."""
    address = ""
    for moves in range(_MAX_MOVES + 1):
        try:
            with connect.open(address) as target:
                if special is not None:
                    request.start_offset = _special(target, request, special)
                    special = None
                yield from _stream(target, request)
                return
        except Elsewhere as error:
            if not error.leader_address or moves == _MAX_MOVES:
                raise
            address = error.leader_address


def _special(target: Target, request: pb.FetchRequest, timestamp: int) -> int:
    asked = pb.ListOffsetsRequest(
        topic=request.topic,
        partition=request.partition,
        timestamp=timestamp,
        isolation_level=request.isolation_level,
        tiers=request.tiers,
    )
    answer = target.ask(target.fetch.ListOffsets, asked)
    return answer.offset


def _stream(target: Target, request: pb.FetchRequest) -> Iterator[tuple[str, Record]]:
    """Leaves in `request` where to go on."""
    with target.stream(target.fetch.Fetch, request) as answers:
        for answer in answers:
            aborted = [(row.producer_id, row.first_offset) for row in answer.aborted_transactions]
            wanted = Wanted(start_offset=request.start_offset, aborted=aborted)
            tier = pb.Tier.Name(answer.tier).lower()
            for record in user_records(answer.batches, wanted):
                yield tier, record
            request.start_offset = answer.next_offset


def _line(tier: str, record: Record) -> str:
    headers = ",".join(f"{name}={_text(value)}" for name, value in record.headers)
    cells = (
        tier,
        str(record.offset),
        human_time(record.timestamp_ms),
        _text(record.key),
        _text(record.value),
        headers,
    )
    return "\t".join(cells).rstrip()


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    shown = data[:_MAX_SHOWN_BYTES].decode(errors="backslashreplace")
    more = f"... ({len(data)} bytes)" if len(data) > _MAX_SHOWN_BYTES else ""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in shown) + more


def _json_line(tier: str, record: Record) -> str:
    return json.dumps(
        {
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            **_bytes("key", record.key),
            **_bytes("value", record.value),
            "headers": [{"name": name, **_bytes("value", value)} for name, value in record.headers],
            "tier": tier,
        },
        ensure_ascii=False,
    )


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """UTF-8 text unchanged, other bytes as `<name>_hex`."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": data.hex()}
