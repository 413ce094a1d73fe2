"""`python -m bench.leadership`: how soon a service notices that its broker leads a partition.

Three brokers, a topic of three replicas, nobody produces. Each round stops one broker in order
(controlled shutdown: all that it led moves at once), starts it again, and gives its partitions back
one by one (preferred election). A change counts from the time at which the new leader wrote its
leader-epoch-checkpoint. Brokers answer Metadata a moment before that, so that a change may be
noticed before it counts; the time since it was asked for is an upper bound. It is noticed when
the service beside that broker shows the partition as its own in /metrics, which is asked twenty
times a second; from then on its tasks and its API treat the partition as led. Services poll at the
interval that they have by default.
"""

import argparse
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

from confluent_kafka import ElectionType, TopicPartition

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from bench.processes import BenchError
from bench.production import answer_of, production_sandbox
from bench.report import p95
from bench.topics import admin_client, enable, leaders, make_topic, produce, wait_in_sync
from bench.watching import Watch
from kip405.checkpoints import parse_leader_epochs
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override

T = TypeVar("T")
SHUTDOWN = "shutdown"
ELECTION = "election"
MOST_P95_S = 2.0
_TOPIC = "leadership"
_NODES = (1, 2, 3)
_RECORDS_EACH = 10
_NO_EPOCH = -1
_SEGMENT_MIB = 16
_EVERY_S = 0.05
_TIMEOUT_S = 60
_GAP_S = 1.3
"""Between two elections: no multiple of the interval at which services poll."""
_SAMPLE = re.compile(
    rf'^rlm_remote_log_size_bytes{{partition="(\d+)",topic="{_TOPIC}"}}', re.MULTILINE
)
_NO_REBALANCE = Override.parse("broker.auto.leader.rebalance.enable=false")
_OPTIONS = ("partitions", "rounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A partition got another leader, `node`; the seconds until the service beside it knew, from
    the change and from when it was asked for.
    """

    round: int
    way: str
    partition: int
    node: int
    noticed_s: float
    since_asked_s: float
    load: str


class LeadersSeen(Watch):
    """`at_s`: when (node, partition) was seen first in the metrics of the node's service, in
    seconds since the epoch. Services are asked while it is entered.
    """

    def __init__(self, sandbox: Sandbox, nodes: Sequence[int]) -> None:
        super().__init__(_EVERY_S)
        self._sandbox, self._nodes = sandbox, nodes
        self.at_s: dict[tuple[int, int], float] = {}

    def see(self) -> bool:
        """See `Watch`; there may always be more."""
        for node in self._nodes:
            for partition in _shown(self._sandbox, node):
                self.at_s.setdefault((node, partition), time.time())
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        return _summary(runs), document(given, "leadership", _OPTIONS, runs)

    return measure(given, "leadership", run)


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[Change]:
    rounds, partitions = (1, 6) if given.quick else (given.rounds, given.partitions)
    runs: list[Change] = []
    with production_sandbox(progress, brokers=len(_NODES), overrides=(_NO_REBALANCE,)) as sandbox:
        make_topic(sandbox, _TOPIC, partitions, _SEGMENT_MIB, replicas=len(_NODES))
        produce(sandbox, _TOPIC, partitions * _RECORDS_EACH)
        enable(sandbox, _TOPIC)
        for number in range(rounds):
            for found in _round(sandbox, number, _NODES[number % len(_NODES)]):
                progress(_line(found))
                runs.append(found)
    return runs


def _round(sandbox: Sandbox, number: int, node: int) -> list[Change]:
    """The broker's partitions move away, all at once, and come back, one by one."""
    _wait_known(sandbox)
    led = [at for at, leader in enumerate(leaders(sandbox, _TOPIC)) if leader == node]
    others = [one for one in _NODES if one != node]
    name = f"broker:{node}"
    found = _changes(sandbox, number, SHUTDOWN, led, others, partial(sandbox.stop, name))
    sandbox.start(name)
    wait_in_sync(sandbox, _TOPIC)
    _wait_known(sandbox)
    for partition in led:
        time.sleep(_GAP_S)
        found += _changes(
            sandbox, number, ELECTION, [partition], [node], partial(_elect, sandbox, partition)
        )
    return found


def _changes(
    sandbox: Sandbox,
    number: int,
    way: str,
    partitions: Sequence[int],
    nodes: Sequence[int],
    act: Callable[[], None],
) -> list[Change]:
    """What `act` does to the partitions, one of the nodes leads each afterwards."""
    before = {one: max(_epochs(sandbox, one, _NODES).values())[0] for one in partitions}
    with LeadersSeen(sandbox, nodes) as seen, ThreadPoolExecutor(1) as acting:
        asked_s = time.time()
        acted = acting.submit(act)
        changed = {
            one: _wait(partial(_new_leader, sandbox, one, nodes, before[one])) for one in partitions
        }
        for one, (node, _) in changed.items():
            _wait(partial(seen.at_s.get, (node, one)))
        acted.result()
    return [
        Change(
            round=number,
            way=way,
            partition=one,
            node=node,
            noticed_s=round(seen.at_s[node, one] - changed_s, 3),
            since_asked_s=round(seen.at_s[node, one] - asked_s, 3),
            load=load_in_words(),
        )
        for one, (node, changed_s) in changed.items()
    ]


def _new_leader(
    sandbox: Sandbox, partition: int, nodes: Sequence[int], before: int
) -> tuple[int, float] | None:
    """The node whose checkpoint has a later epoch than before, and when it was written. A follower
    writes an epoch only with records that it fetched, and nobody produces.
    """
    found = _epochs(sandbox, partition, nodes)
    node, (epoch, written_s) = max(found.items(), key=lambda item: item[1])
    return (node, written_s) if epoch > before else None


def _epochs(sandbox: Sandbox, partition: int, nodes: Sequence[int]) -> dict[int, tuple[int, float]]:
    """The newest leader epoch that each broker knows, and when its file was written."""
    found = {}
    for node in nodes:
        [log_dir] = sandbox.log_dirs(node)
        with (log_dir / f"{_TOPIC}-{partition}" / "leader-epoch-checkpoint").open("rb") as file:
            data = file.read()
            entries = parse_leader_epochs(data).entries if data else ()
            epoch = entries[-1].epoch if entries else _NO_EPOCH
            found[node] = epoch, os.fstat(file.fileno()).st_mtime
    return found


def _elect(sandbox: Sandbox, partition: int) -> None:
    with admin_client(sandbox) as admin:
        wanted = [TopicPartition(_TOPIC, partition)]
        for error in (
            admin.elect_leaders(ElectionType.PREFERRED, wanted).result(_TIMEOUT_S).values()
        ):
            if error is not None:
                raise BenchError(f"{_TOPIC}-{partition} got no other leader: {error}")


def _wait_known(sandbox: Sandbox) -> None:
    """Until every service shows the partitions that its broker leads, and no others."""

    def is_known() -> bool:
        led = leaders(sandbox, _TOPIC)
        return all(
            _shown(sandbox, node) == {at for at, leader in enumerate(led) if leader == node}
            for node in _NODES
        )

    _wait(is_known)


def _shown(sandbox: Sandbox, node: int) -> set[int]:
    """The partitions that the node's service shows as its own."""
    text = answer_of(sandbox, node, "/metrics").decode()
    return {int(number) for number in _SAMPLE.findall(text)}


def _wait(reached: Callable[[], T | None]) -> T:
    """What it answers, once it answers something true."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not (found := reached()):
        if time.monotonic() > deadline_s:
            raise BenchError(f"{_TOPIC}: no change of leaders was seen within {_TIMEOUT_S} s")
        time.sleep(_EVERY_S)
    return found


def _summary(runs: Sequence[Change]) -> list[str]:
    lines = []
    for way in dict.fromkeys(one.way for one in runs):
        noticed = [one.noticed_s for one in runs if one.way == way]
        lines.append(
            f"{way}: median {median(noticed):.2f} s, p95 {p95(noticed):.2f} s, most "
            f"{max(noticed):.2f} s of {len(noticed)} changes"
        )
    every, asked = p95([one.noticed_s for one in runs]), p95([one.since_asked_s for one in runs])
    return [
        *lines,
        f"all: p95 {every:.2f} s, {asked:.2f} s since asked for; at most {MOST_P95_S:.0f} s wanted",
    ]


def _line(one: Change) -> str:
    return (
        f"round {one.round}, {one.way:8}, partition {one.partition:>2} to broker {one.node}: "
        f"noticed after {one.noticed_s:.2f} s, {one.since_asked_s:.2f} s since asked for, "
        f"load {one.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.leadership", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--partitions", type=int, default=12)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
