"""Faults of the broker's listeners that `rlm doctor` finds."""

from pathlib import Path

import pytest

from kip405.errors import Unavailable
from rlm.broker.answers import BrokerNode
from rlm.diagnosis.observed import ObservedClient
from rlm.plans.problems import Severity
from tests.builders.service import NODE_ID
from tests.rlm.diagnosis.world import CLUSTER_ID, OTHER_NODE, World

PROTOCOLS = "DIRECT:PLAINTEXT,TIERED:{},CONTROLLER:PLAINTEXT"


@pytest.mark.parametrize(
    ("changed", "said", "remedy"),
    [
        (
            {"inter.broker.listener.name": "TIERED"},
            "TIERED is the inter-broker listener",
            "set inter.broker.listener.name to another listener",
        ),
        (
            {"controller.listener.names": "CONTROLLER,TIERED"},
            "TIERED is a controller listener",
            "a listener of its own",
        ),
        (
            {"listener.security.protocol.map": PROTOCOLS.format("SASL_SSL")},
            "the proxy does not speak TLS to it",
            "broker.tiered.tls.ca.file",
        ),
        (
            {"advertised.listeners": "TIERED://broker-3:19093"},
            "clients would not come to the proxy",
            "set TIERED://broker-3:9092 in the broker's advertised.listeners",
        ),
        (
            {"authorizer.class.name": "kafka.Authorizer"},
            "all clients would be one identity",
            "SASL_PLAINTEXT",
        ),
    ],
)
async def test_h21_h23_what_keeps_a_service_from_starting(
    world: World, changed: dict[str, str], said: str, remedy: str
) -> None:
    world.own.config |= changed
    found = (await world.findings())["listeners"]
    [finding] = found
    assert finding.severity is Severity.ALARM
    assert said in finding.text and remedy in finding.remedy


async def test_all_that_is_wrong_with_a_listener_is_found_at_once(world: World) -> None:
    world.own.config |= {
        "inter.broker.listener.name": "TIERED",
        "advertised.listeners": "TIERED://broker-3:19093",
        "authorizer.class.name": "kafka.Authorizer",
    }
    assert len((await world.findings())["listeners"]) == 3


async def test_a_broker_without_the_tiered_listener(world: World) -> None:
    world.own.config["listeners"] = "DIRECT://:19092,CONTROLLER://:19094"
    finding = await world.only("tiered-listener")
    assert finding.text == "the broker has no listener TIERED; it has DIRECT, CONTROLLER"
    assert "add TIERED" in finding.remedy


@pytest.mark.parametrize("host", ["", "0.0.0.0", "broker-3", "[::]"])
async def test_h19_a_tiered_listener_that_others_reach_past_the_proxy(
    world: World, host: str
) -> None:
    world.own.config["listeners"] = f"DIRECT://:19092,TIERED://{host}:19093"
    finding = await world.only("past-proxy")
    assert finding.severity is Severity.WARNING
    assert "past the proxy" in finding.text and "127.0.0.1" in finding.remedy


async def test_h23_a_limit_for_one_address_is_one_for_all_clients(world: World) -> None:
    world.own.config["max.connections.per.ip"] = "100"
    finding = await world.only("per-ip")
    assert "allows 100 connections of an address" in finding.text
    assert "max.connections.per.ip.overrides=127.0.0.1:10000" in finding.remedy
    world.own.config["max.connections.per.ip.overrides"] = "10.0.0.1:5,127.0.0.1:10000"
    assert await world.findings() == {}
    world.own.config["max.connections.per.ip.overrides"] = "127.0.0.1:9999"
    assert "overrides allows 9999" in (await world.only("per-ip")).text


async def test_h23_a_quota_of_connections_of_one_address_is_one_of_all_clients(
    world: World,
) -> None:
    world.own.rates = {None: 20.0, "10.0.0.1": 5.0}
    finding = await world.only("connection-rate")
    assert finding.severity is Severity.WARNING
    assert "lets 20 new connections a second" in finding.text and "10000 of them" in finding.text
    assert "--entity-name 127.0.0.1 --add-config connection_creation_rate=1000" in finding.remedy
    world.own.rates["127.0.0.1"] = 1_000.0
    assert await world.findings() == {}
    world.own.rates["127.0.0.1"] = 999.0
    assert "lets 999 new" in (await world.only("connection-rate")).text
    world.own.rates = {"10.0.0.1": 5.0}
    assert await world.findings() == {}


async def test_a_limit_of_loopback_is_none_of_a_proxy_that_comes_from_elsewhere(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, **{"broker.tiered.address": "10.0.0.3:19093"})
    world.own.rates = {None: 20.0, "127.0.0.1": 1_000.0}
    world.own.config["max.connections.per.ip"] = "100"
    world.own.config["max.connections.per.ip.overrides"] = "127.0.0.1:10000"
    found = await world.findings()
    assert "lets 20 new" in found["connection-rate"][0].text
    assert "allows 100 connections" in found["per-ip"][0].text


async def test_h38_quotas_that_the_broker_does_not_say_are_not_sound(world: World) -> None:
    world.own.rates_refusal = Unavailable("not now")
    examined = await world.examined()
    assert examined["connection-rate"].unasked == "not now" and examined["per-ip"].is_sound


async def test_h13_a_broker_of_another_cluster(world: World) -> None:
    world.own.cluster_id = "theirs"
    finding = await world.only("broker")
    assert "of cluster theirs, cluster.id is ours" in finding.text
    assert "broker.direct.address" in finding.remedy


async def test_a_broker_that_is_too_old(world: World) -> None:
    world.own.too_old = "the broker is older than Kafka 3.3"
    assert "upgrade the broker" in (await world.only("broker")).remedy


def seen(world: World, **changed: object) -> ObservedClient:
    nodes = {node: BrokerNode(node_id=node, host=f"broker-{node}", port=9092) for node in (3, 4)}
    for name, port in changed.items():
        number = int(name.removeprefix("node_"))
        nodes[number] = BrokerNode(node_id=number, host=f"broker-{number}", port=int(str(port)))
    return ObservedClient(
        bootstrap="broker-3:9092", cluster_id=CLUSTER_ID, nodes=tuple(nodes.values()), refused={}
    )


async def test_h19_a_client_that_learns_proxies_is_led_well(world: World) -> None:
    world.client = seen(world)
    assert await world.findings() == {}


async def test_h19_a_client_that_learns_a_brokers_own_address(world: World) -> None:
    world.client = seen(world, node_4=19092)
    finding = await world.only("as-client")
    assert finding.subject == f"node {OTHER_NODE}"
    assert "clients learn broker-4:19092" in finding.text
    assert "at broker-4:9092" in finding.remedy


async def test_h19_a_client_that_learns_an_address_which_nobody_reaches(world: World) -> None:
    client = seen(world)
    world.client = ObservedClient(
        bootstrap=client.bootstrap,
        cluster_id=client.cluster_id,
        nodes=client.nodes,
        refused={NODE_ID: "Name or service not known"},
    )
    finding = await world.only("as-client")
    assert "Name or service not known" in finding.text and "resolve and reach" in finding.remedy


async def test_a_client_that_begins_at_another_cluster(world: World) -> None:
    client = seen(world)
    world.client = ObservedClient(
        bootstrap=client.bootstrap, cluster_id="theirs", nodes=client.nodes, refused={}
    )
    assert "is of cluster theirs" in (await world.only("as-client")).text


async def test_without_as_client_nothing_of_it_is_checked(tmp_path: Path) -> None:
    examined = (await World(tmp_path).examined())["as-client"]
    assert examined.unwanted == "--as-client was not given"
    assert not examined.is_sound and not examined.is_failed and not examined.findings


async def test_h19_a_proxy_on_another_machine_needs_a_port_that_it_reaches(tmp_path: Path) -> None:
    world = World(tmp_path, **{"broker.tiered.address": "broker-3:19093"})
    world.own.config["listeners"] = "DIRECT://:19092,TIERED://:19093"
    assert (await world.only("past-proxy")).severity is Severity.NOTE
    assert (await world.examined())["past-proxy"].is_sound
