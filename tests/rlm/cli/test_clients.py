"""`rlm clients`: clients of every proxy as one, and who reads a topic past them."""

from kip405.errors import Unavailable
from rlm.plans.client_activity import OTHER_CLIENTS, ClientName, ClientTable
from rlm.topics.ports import GroupOffset
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import api_node
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.topics.cluster import Cluster

ALICE = ClientName("alice", "c-1", "10.0.0.1")
BOB = ClientName("", "c-2", "10.0.0.2")


def reads(clients: ClientTable, name: ClientName, topic: str, remote: int, local: int) -> None:
    clients.connected(name)
    clients.read(name, topic, remote, local)


async def test_a_client_of_two_proxies_is_one_row() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        reads(one.clients, ALICE, TOPIC, 2_048, 10)
        one.clients.runs(ALICE, "kcat 1.7")
        one.clients.throttled(ALICE, 1_500)
        reads(two.clients, ALICE, TOPIC, 0, 5)
        reads(two.clients, ALICE, "other", 3, 4)
        two.clients.joined(ALICE, "billing")
        reads(two.clients, BOB, "other", 1, 0)
        await one.service.settings.barrier(1_000)  # the other service is known
        answer = await as_json(one, "clients")
        assert not answer["problems"] and not answer["direct_groups"]
        bob, alice = answer["clients"]
        assert (bob["principal"], bob["client_id"], bob["connections"]) == ("", "c-2", 1)
        assert alice == {
            "principal": "alice",
            "client_id": "c-1",
            "address": "10.0.0.1",
            "software": ["kcat 1.7"],
            "groups": ["billing"],
            "connections": 3,
            "throttled_ms": 1_500,
            "topics": [
                {"topic": TOPIC, "remote_bytes": 2_048, "local_bytes": 15},
                {"topic": "other", "remote_bytes": 3, "local_bytes": 4},
            ],
        }
        shown = (await asked(one, "clients")).stdout.splitlines()
        rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in shown]
        assert rows[0][:5] == ["principal", "client id", "address", "software", "groups"]
        assert rows[2] == [
            *("alice", "c-1", "10.0.0.1", "kcat 1.7", "billing"),
            *("3", "2.0 KiB", "19 B", "1.5 s"),
        ]


async def test_h19_groups_that_read_past_the_proxies_are_beside_the_readers_of_a_topic() -> None:
    cluster = Cluster()
    cluster.groups = tuple(
        GroupOffset(group=group, partition=partition, offset=partition + 5)
        for group in ("billing", "past", "named", "seen-there")
        for partition in (1, 0)
    )
    cluster.share_starts = {0: 40}
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        reads(one.clients, ALICE, TOPIC, 1, 0)
        one.clients.joined(ALICE, "billing")
        two.clients.joined(ALICE, "seen-there")
        reads(two.clients, BOB, "other", 1, 0)
        two.clients.joined(BOB, "named")  # whoever reads nothing of it may name any group
        reads(two.clients, OTHER_CLIENTS, TOPIC, 1, 0)
        two.clients.joined(OTHER_CLIENTS, "past")
        await one.service.settings.barrier(1_000)
        answer = await as_json(one, "clients", TOPIC)
        assert [row["client_id"] for row in answer["clients"]] == ["", "c-1"]
        positions = [{"partition": 0, "offset": 5}, {"partition": 1, "offset": 6}]
        past = [{"group": group, "positions": positions} for group in ("named", "past")]
        assert answer["direct_groups"] == past
        seen = [{"group": group, "positions": positions} for group in ("billing", "seen-there")]
        assert answer["proxied_groups"] == seen
        assert answer["share_starts"] == [{"partition": 0, "offset": 40}]
        shown = (await asked(one, "clients", TOPIC)).stdout
        _, _, direct = shown.partition("committed")
        assert "past" in direct and "0:5, 1:6" in direct and "seen-there" not in direct
        assert "share groups hold the trim at 0:40" in shown


async def test_h38_what_is_not_known_is_said() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1):
        pass
    async with api_node(cluster, node_id=2) as two:
        answer = await as_json(two, "clients", TOPIC)
        [problem] = answer["problems"]
        assert problem["node_id"] == 1 and "not reachable" in problem["problem"]
        shown = (await asked(two, "clients", TOPIC)).stdout
        assert "unknown: the clients at broker 1" in shown
        assert "no group has offsets that the proxies that answered have not seen" in shown
        cluster.groups_error = Unavailable("no coordinator")
        answer = await as_json(two, "clients", TOPIC)
        assert answer["direct_problem"] == "no coordinator"
        assert "unknown: groups past the proxies" in (await asked(two, "clients", TOPIC)).stdout


async def test_a_topic_that_is_not_there_is_an_error() -> None:
    async with api_node(Cluster(), node_id=1) as one:
        assert_one_line(await asked(one, "clients", "nothing"), "nothing", status=1)
