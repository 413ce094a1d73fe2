"""Every client of the table reads both tiers of three brokers, without and with security: from the
very start while a leader changes, by seek while a service restarts, and as a member of a group that
another one joins. Every record is compared. The brokers of the secured ones are secured among
themselves too.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from tests.builders import secured_clients
from tests.sandbox.test_secured_cluster import written
from tests.sandbox_fixtures import with_workers
from tests.scenarios.client_programs import EARLIEST, Reading, command_of, spec_of
from tests.scenarios.client_table import PLAINTEXT, SASL_SSL, Cell, InCi, cells
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.repeats import Repeat, repeats_of
from tests.scenarios.replicas import lead, reassign, replicas, wait_isr
from tests.scenarios.test_secured import PrincipalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_MIB = 4
_PARTITIONS = 2
_REPLICAS = [[1, 2, 3], [2, 3, 1]]
_READ_LIMIT_S = 150
_PAUSE_S, _WORK_S = 0.02, 0.01
_WITHOUT_END = 1 << 40
_VERY_START = dict.fromkeys(range(_PARTITIONS), EARLIEST)
_SEEKS = {0: 7, 1: 1_000}
_WAYS = 3
"""From the very start, by seek, and as a member of a group."""

_CHANGES_OF_LEADER = 10
_EVENT_AT = 400
"""Rows after which something happens; all clients together hold fewer than are left then."""

_NOTICED_AT = 700
"""Rows until which a client that goes back works slowly: by then it has asked an old leader again,
and it goes back if it commits in that moment.
"""

_CODEC: dict[str, Any] = {"compression.type": "gzip"}
"""All clients know it, also those that have no codec of their own language's."""

_MEMBERS_IN_CI = [one for one in cells(PLAINTEXT) if one.in_ci is InCi.AS_A_MEMBER]
_GOES_BACK = [one for one in cells(PLAINTEXT) if not one.client.reads_once]


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """A topic, what was acknowledged of it, and from where it is read; in both tiers, but for the
    one of `direct`.
    """

    cluster: Cluster
    topic: str
    rows: list[Row]
    bootstrap: str


def _written(cluster: Cluster, topic: str, bootstrap: str) -> Both:
    rows = [
        row
        for p in range(_PARTITIONS)
        for row in cluster.fill(topic, mib=_MIB, partition=p, **_CODEC)
    ]
    return Both(cluster=cluster, topic=topic, rows=rows, bootstrap=bootstrap)


def _filled(cluster: Cluster) -> Both:
    topic = fresh("every-client")
    cluster.create_topic(topic, assignment=_REPLICAS)
    cluster.enable(topic)
    both = _written(cluster, topic, cluster.bootstrap)
    for partition in range(_PARTITIONS):
        cluster.wait_trimmed(topic, partition, beyond=_SEEKS[partition])
    return both


@pytest.fixture(scope="module")
def both(three_brokers: Sandbox) -> Iterator[Both]:
    """PLAINTEXT."""
    with Cluster(three_brokers) as cluster:
        yield _filled(cluster)
        cluster.delete_topics()


@pytest.fixture(scope="module")
def direct(both: Both) -> Both:
    """A topic that no service has touched, read from the brokers without the proxies. One broker
    has no replica of it, so that a leader can go elsewhere for good (`_leader_moves_away`).
    """
    topic = fresh("direct")
    both.cluster.create_topic(topic, assignment=[nodes[:2] for nodes in _REPLICAS])
    return _written(both.cluster, topic, both.cluster.direct)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """SASL_SSL, with an authorizer that denies what no ACL allows."""
    spec = SandboxSpec(brokers=3, security="sasl_ssl", jvm="quick", heap_mib=256)
    made = Sandbox.up(tmp_path_factory.mktemp("secured-three"), with_workers(spec))
    try:
        admin = secured_clients.librdkafka(made.json, "admin", proxy=True)
        with PrincipalCluster(made, admin) as cluster:
            yield _filled(cluster)
    finally:
        made.down(delete=True)


class Meanwhile:
    """Does something beside readers that have all got so far, which go on slowly until it is done:
    each calls it with the count of its rows.
    """

    def __init__(self, work: Callable[[], None], readers: int = 1) -> None:
        self._lock = threading.Lock()
        self._before = readers
        self._is_done = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(work,))

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's own thread
            self._failed.append(error)
        self._is_done.set()

    def __call__(self, count: int) -> None:
        if count == _EVENT_AT:
            with self._lock:
                self._before -= 1
                if not self._before:
                    self._thread.start()
        elif count > _EVENT_AT and not self._is_done.is_set():
            time.sleep(_PAUSE_S)

    def check(self) -> None:
        """It has happened, and well."""
        assert self._is_done.wait(_READ_LIMIT_S), "not all readers have got so far"
        self._thread.join()
        if self._failed:
            raise self._failed[0]


def _params(security: str) -> list[object]:
    return [
        pytest.param(cell, id=cell.id, marks=() if cell.in_ci is InCi.ALL else pytest.mark.long)
        for cell in cells(security)
    ]


def _reads_from_the_very_start(both: Both, cell: Cell) -> list[Repeat]:
    """The leader of a partition changes meanwhile."""
    cluster, topic = both.cluster, both.topic
    node = cluster.wait_led(topic) % 3 + 1
    meanwhile = Meanwhile(lambda: lead(cluster, topic, node))
    return _reads_alone(both, cell, _VERY_START, both.rows, meanwhile)


def _reads_by_seek(both: Both, cell: Cell) -> list[Repeat]:
    """From old offsets; the service of a leader restarts meanwhile."""
    cluster = both.cluster
    wanted = _sought(both)
    name = f"rlm:{cluster.wait_led(both.topic, 1)}"

    def restart() -> None:
        cluster.sandbox.kill(name)
        cluster.sandbox.start(name)

    return _reads_alone(both, cell, _SEEKS, wanted, Meanwhile(restart))


def _sought(both: Both) -> list[Row]:
    """From the offsets on that are sought, which only the remote tier has."""
    starts = {p: both.cluster.log_start(both.topic, p) for p in _SEEKS}
    assert all(at < starts[p] for p, at in _SEEKS.items()), "not old"
    return [row for row in both.rows if row.offset >= _SEEKS[row.partition]]


def _reads_alone(
    both: Both, cell: Cell, starts: dict[int, int], wanted: list[Row], meanwhile: Meanwhile
) -> list[Repeat]:
    """What came again, which a client may do only after its last commit (`repeats_of`), and none
    but one that does not read once.
    """
    client, repeats = cell.client, list[Repeat]()
    count = len(wanted) if client.reads_once else _WITHOUT_END
    spec = spec_of(client, both.cluster, both.topic, count, starts=starts, bootstrap=both.bootstrap)

    def on_row(count: int) -> None:
        meanwhile(count)
        if not client.reads_once and _EVENT_AT < count < _NOTICED_AT:
            time.sleep(_WORK_S)

    with Reading(client, spec, on_row) as reading:
        if client.reads_once:
            assert_same(reading.all_rows(_READ_LIMIT_S), wanted)
        else:
            _wait_for_all(both.cluster, [reading], wanted)
            firsts = {row.partition: row.offset for row in reversed(wanted)}
            repeats = repeats_of(tuple(reading.events), firsts)
            print(f"{client.id} was given again: {repeats}")
    meanwhile.check()
    return repeats


def _reads_as_a_group(both: Both, cell: Cell) -> None:
    """Another member joins meanwhile. What was read and not committed is read twice."""
    cluster, topic, group = both.cluster, both.topic, fresh("group")
    count, protocol = len(both.rows), cell.protocol
    spec = spec_of(cell.client, cluster, topic, count, group=group, protocol=protocol)
    has_joined, begun = threading.Event(), threading.Event()

    def hold(rows: int) -> None:
        if rows == _EVENT_AT:
            begun.set()
        if rows >= _EVENT_AT and not has_joined.is_set():
            time.sleep(_PAUSE_S)

    with Reading(cell.client, spec, hold) as first:
        assert begun.wait(_READ_LIMIT_S), first.said
        with Reading(cell.client, spec, lambda _: has_joined.set()) as second:
            _wait_for_all(cluster, [first, second], both.rows)
            assert second.rows, "there was no rebalance"


def _wait_for_all(cluster: Cluster, readings: list[Reading], wanted: list[Row]) -> None:
    """Nothing is left out, and nothing is another record than it was."""
    by_offset = {(row.partition, row.offset): row for row in wanted}

    def found() -> list[Row]:
        return [row for one in readings for row in tuple(one.rows)]

    def is_all() -> bool:
        ended = [one.said for one in readings if one.has_ended()]
        if {(row.partition, row.offset) for row in found()} >= by_offset.keys():
            return True  # one that has all may have ended: nothing came any more
        assert not ended, ended
        return False

    cluster.wait_for(is_all, f"all {len(wanted)} rows", _READ_LIMIT_S)
    for row in found():
        assert by_offset[row.partition, row.offset] == row


@pytest.mark.parametrize("cell", _params(PLAINTEXT))
def test_client_reads_both_tiers(both: Both, cell: Cell) -> None:
    _reads(both, cell)


@pytest.mark.parametrize("cell", _MEMBERS_IN_CI, ids=lambda one: one.id)
def test_member_of_a_group_reads_both_tiers(both: Both, cell: Cell) -> None:
    """From the very start: of clients in other languages this is what CI has the time for."""
    _reads_in(both, cell, _reads_as_a_group)


@pytest.mark.long
@pytest.mark.parametrize("cell", _GOES_BACK, ids=lambda one: one.id)
def test_client_that_is_given_records_again_is_so_by_the_brokers_too(
    direct: Both, cell: Cell
) -> None:
    """Else it would not be the client's own doing: after a change of leader it goes back, never
    before its last commit, whoever answers it.
    """
    command_of(cell.client)

    def goes_back() -> bool:
        meanwhile = Meanwhile(lambda: _leader_moves_away(direct))
        return bool(_reads_alone(direct, cell, _VERY_START, direct.rows, meanwhile))

    assert any(goes_back() for _ in range(_CHANGES_OF_LEADER))


def _leader_moves_away(direct: Both) -> None:
    """To the follower, and its replica to the broker that had none: a leader that only becomes a
    follower would go on answering clients that know Fetch 11 (KIP-392), and a client that sends no
    leader epoch would notice nothing.
    """
    cluster, topic = direct.cluster, direct.topic
    leader = cluster.wait_led(topic)
    [follower] = set(replicas(cluster, topic)) - {leader}
    [other] = {1, 2, 3} - {leader, follower}
    reassign(cluster, topic, [follower, other])


@pytest.mark.long
@pytest.mark.parametrize("cell", _params(SASL_SSL))
def test_client_reads_both_tiers_by_sasl_ssl(secured: Both, cell: Cell) -> None:
    _reads(secured, cell)


def test_clients_read_both_tiers_at_once_by_sasl_ssl(secured: Both) -> None:
    """CI's clients, each in three ways beside all others, while the leader of a partition changes:
    what CI has the time for.
    """
    cluster, topic, rows = secured.cluster, secured.topic, secured.rows
    chosen = [cell for cell in cells(SASL_SSL) if cell.in_ci is InCi.ALL]
    node = cluster.wait_led(topic) % 3 + 1
    meanwhile = Meanwhile(lambda: lead(cluster, topic, node), readers=_WAYS * len(chosen))
    with contextlib.ExitStack() as open_readings:

        def begin(cell: Cell, count: int, **how: Any) -> Reading:
            spec = spec_of(cell.client, cluster, topic, count, protocol=cell.protocol, **how)
            return open_readings.enter_context(Reading(cell.client, spec, meanwhile))

        old = _sought(secured)
        alone = [(begin(cell, len(rows), starts=_VERY_START), rows) for cell in chosen]
        alone += [(begin(cell, len(old), starts=_SEEKS), old) for cell in chosen]
        members = [begin(cell, len(rows), group=fresh("group")) for cell in chosen]
        for reading, wanted in alone:
            assert_same(reading.all_rows(_READ_LIMIT_S), wanted)
        for member in members:
            _wait_for_all(cluster, [member], rows)
    meanwhile.check()


def test_three_brokers_and_a_controller_are_secured_among_themselves(secured: Both) -> None:
    """Brokers copy from each other, one that comes up again too, and all listeners want a proof."""
    cluster, sandbox = secured.cluster, secured.cluster.sandbox
    topic = fresh("among-themselves")
    cluster.create_topic(topic, assignment=_REPLICAS)
    sandbox.kill("broker:2")
    sandbox.start("broker:2")
    admin = secured_clients.librdkafka(sandbox.json, "admin")
    assert written({**admin, "acks": "all"}, topic, *[b"x"] * 30) == [None] * 30
    for partition in range(_PARTITIONS):
        wait_isr(cluster, topic, {1, 2, 3}, partition)
    assert not secured_clients.connects(sandbox.state.quorum_port, None)


def _reads(both: Both, cell: Cell) -> None:
    chosen = (_reads_from_the_very_start, _reads_by_seek) if cell.client.seeks else ()
    for read in (*chosen, _reads_as_a_group):
        _reads_in(both, cell, read)


def _reads_in(both: Both, cell: Cell, read: Callable[[Both, Cell], object]) -> None:
    command_of(cell.client)
    began_s = time.monotonic()
    read(both, cell)
    print(f"{cell.id} {cell.security} {read.__name__}: {time.monotonic() - began_s:.1f} s")
