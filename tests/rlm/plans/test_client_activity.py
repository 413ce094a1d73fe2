"""Who reads: rows of clients, what workers send of them, and who entered remote data."""

from rlm.plans.client_activity import (
    OTHER_CLIENTS,
    ClientName,
    ClientRow,
    ClientTable,
    Entered,
    TierBytes,
)

ALICE = ClientName("alice", "reader-1", "10.0.0.1")
ANON = ClientName("", "reader-1", "10.0.0.1")


def seen(table: ClientTable) -> dict[ClientName, ClientRow]:
    return {row.name: row for row in table.rows()}


def test_a_row_has_what_was_counted() -> None:
    table = ClientTable()
    table.connected(ALICE)
    table.connected(ALICE)
    table.runs(ALICE, "librdkafka 2.6.0")
    table.joined(ALICE, "billing")
    table.read(ALICE, "orders", 100, 0)
    table.read(ALICE, "orders", 20, 7)
    table.throttled(ALICE, 30)
    table.connected(ALICE, -1)
    assert seen(table) == {
        ALICE: ClientRow(
            ALICE,
            connections=1,
            software={"librdkafka 2.6.0": None},
            groups={"billing": None},
            topics={"orders": TierBytes(120, 7)},
            throttled_ms=30,
        )
    }


def test_a_client_that_did_nothing_leaves_no_row_and_another_does() -> None:
    table = ClientTable()
    for name in (ALICE, ANON):
        table.connected(name)
        table.runs(name, "kcat")
    table.read(ALICE, "orders", 0, 1)
    for name in (ALICE, ANON):
        table.connected(name, -1)
    assert list(seen(table)) == [ALICE]


def test_a_group_enters_remote_data_once_whichever_member_reads() -> None:
    entered: list[Entered] = []
    table = ClientTable(entered.append)
    other = ClientName("alice", "reader-2", "10.0.0.2")
    for name in (ALICE, other):
        table.joined(name, "billing")
        table.read(name, "orders", 0, 50)
        assert not entered or name is other
        table.read(name, "orders", 1, 0)
        table.read(name, "payments", 1, 0)
    assert entered == [Entered("group", "billing", ALICE, "orders")]


def test_a_client_without_a_group_enters_by_its_id_and_its_group_once_that_is_known() -> None:
    entered: list[Entered] = []
    table = ClientTable(entered.append)
    table.read(ALICE, "orders", 1, 0)
    table.read(ANON, "orders", 1, 0)
    assert entered == [Entered("client", "reader-1", ALICE, "orders")]
    table.joined(ALICE, "billing")
    table.joined(ALICE, "billing")
    assert entered[1:] == [Entered("group", "billing", ALICE, "")]


def test_g10_rows_names_and_topics_are_bounded() -> None:
    table = ClientTable(most=2)
    names = [ClientName("", f"c{number}", "a") for number in range(4)]
    table.connected(names[0])
    table.read(names[1], "t", 1, 0)
    table.connected(names[2])  # the one without a connection goes
    assert list(seen(table)) == [names[0], names[2]]
    table.connected(names[3])
    assert seen(table)[OTHER_CLIENTS].connections == 1
    table.connected(names[3], -1)
    assert OTHER_CLIENTS not in seen(table)
    for number in range(5_000):
        table.joined(names[0], f"g{number}")
        table.runs(names[0], f"s{number}")
        table.read(names[0], f"t{number}", 1, 1)
    row = seen(table)[names[0]]
    assert (len(row.groups), len(row.software)) == (100, 100)
    for number in range(100):
        table.joined(names[2], f"{number:0249}")
    assert sum(map(len, seen(table)[names[2]].groups)) <= 2_500
    assert len(row.topics) <= 1_001
    assert sum(read.remote for read in row.topics.values()) == 5_000


def test_h24_what_workers_took_adds_up_and_what_a_worker_had_ends_with_it() -> None:
    entered: list[Entered] = []
    core = ClientTable(entered.append)
    workers = {name: ClientTable(is_taken=True) for name in ("one", "two")}
    for worker in workers.values():
        worker.connected(ALICE)
        worker.runs(ALICE, "kcat")
        worker.read(ALICE, "orders", 10, 1)
    workers["two"].joined(ALICE, "billing")
    for turn in range(3):
        for source in ("two", "one"):
            core.merge(source, workers[source].taken())
        if turn == 0:
            workers["one"].read(ALICE, "orders", 5, 0)
            workers["one"].throttled(ALICE, 9)
    expected = ClientRow(
        ALICE,
        connections=2,
        software={"kcat": None},
        groups={"billing": None},
        topics={"orders": TierBytes(25, 2)},
        throttled_ms=9,
    )
    assert seen(core) == {ALICE: expected}
    assert entered == [Entered("group", "billing", ALICE, "orders")]
    core.left("two")
    assert seen(core)[ALICE].connections == 1
    workers["one"].connected(ALICE, -1)
    core.merge("one", workers["one"].taken())
    assert seen(core)[ALICE].connections == 0
    assert len(workers["one"]) == 0  # the core remembers it
    core.left("one")
    assert seen(core)[ALICE].connections == 0


def test_h24_a_new_core_is_shown_every_client() -> None:
    worker, core = ClientTable(is_taken=True), ClientTable()
    worker.connected(ALICE)
    worker.joined(ALICE, "billing")
    worker.read(ALICE, "orders", 10, 0)
    ClientTable().merge("w", worker.taken())
    core.merge("w", worker.taken())
    assert not core.rows()
    worker.show_all()
    core.merge("w", worker.taken())
    [row] = core.rows()
    assert (row.connections, row.groups, row.topics) == (1, {"billing": None}, {})


def test_a_connection_that_ended_unseen_is_not_left_behind() -> None:
    worker, core = ClientTable(is_taken=True), ClientTable()
    worker.connected(ANON)
    core.merge("w", worker.taken())
    worker.connected(ANON, -1)
    core.merge("w", worker.taken())
    assert not core.rows()


def come_and_go(table: ClientTable, count: int) -> None:
    for number in range(count):
        name = ClientName("", f"c{number}", "a")
        table.connected(name)
        table.connected(name, -1)


def test_g10_where_nobody_takes_changes_none_is_remembered() -> None:
    table = ClientTable()
    table.connected(ALICE)
    come_and_go(table, 3)
    assert table.taken() == ()
    assert list(seen(table)) == [ALICE]


def test_g10_a_core_that_is_away_gets_no_client_later_that_is_gone() -> None:
    worker = ClientTable(is_taken=True)
    worker.connected(ALICE)
    come_and_go(worker, 3)
    worker.forget_gone()
    assert [row.name for row in worker.taken()] == [ALICE]


def test_g10_clients_that_are_gone_are_bounded_while_a_core_takes_nothing() -> None:
    worker = ClientTable(most=2, is_taken=True)
    worker.connected(ALICE)
    come_and_go(worker, 1_000)
    taken = worker.taken()
    assert taken[0].name == ALICE
    assert len(taken) <= 4


def test_a_new_group_is_reported_at_once() -> None:
    reports: list[str] = []
    table = ClientTable(on_joined=lambda: reports.append("now"))
    table.joined(ALICE, "billing")
    table.joined(ALICE, "billing")
    assert reports == ["now"]


def test_g10_a_group_that_there_is_no_room_for_is_not_reported_at_each_request() -> None:
    reports: list[str] = []
    table = ClientTable(on_joined=lambda: reports.append("now"))
    for _ in range(2):
        for number in range(101):
            table.joined(ALICE, f"g{number}")
        table.joined(ALICE, "")
    assert len(reports) == 100
