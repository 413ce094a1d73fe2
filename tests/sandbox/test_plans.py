"""What a sandbox is made of, decided before anything is started."""

import json
from pathlib import Path
from typing import Any

import pytest

from kip405.checkpoints import parse_properties
from rlm.broker.versions import OLDEST_KAFKA
from rlm.config.broker_files import broker_identity
from rlm.config.loader import from_mapping, reader_from_mapping
from rlm_sandbox import ports as sandbox_ports
from rlm_sandbox.document import sandbox_document
from rlm_sandbox.files import encode_properties
from rlm_sandbox.kafka_dist import KafkaDist
from rlm_sandbox.kafka_versions import MIXED_KAFKA, SUPPORTED_KAFKA, support_table
from rlm_sandbox.launcher import stages
from rlm_sandbox.nodes import (
    broker_properties,
    changed_broker_defaults,
    controller_properties,
    node_command,
    zookeeper_properties,
)
from rlm_sandbox.ports import PortReservation, port_is_free
from rlm_sandbox.services import plugin_config, reader_config, rlm_config
from rlm_sandbox.spec import (
    CONTROLLER_NODE_ID,
    KAFKA_VERSION,
    Layout,
    NodePorts,
    Override,
    ReaderPorts,
    SandboxError,
    SandboxSpec,
    is_before_4,
    version_key,
)
from rlm_sandbox.state import SandboxState
from rlm_sandbox.stores.choice import sandbox_store
from rsm_plugins.process.config import settings_of
from tests.project.tree import ROOT

LAYOUT = Layout(root=Path("/d"))
PORTS = {
    node: NodePorts(
        direct=node * 10 + 1,
        tiered=node * 10 + 2,
        controller=node * 10 + 3,
        proxy=node * 10 + 4,
        grpc=node * 10 + 5,
        http=node * 10 + 6,
        plugin=node * 10 + 7,
    )
    for node in (1, 2, 3)
}


def state(spec: SandboxSpec) -> SandboxState:
    ports = {node: PORTS[node] for node in spec.broker_ids}
    readers = {one: ReaderPorts(grpc=200 + one, http=300 + one) for one in spec.reader_ids}
    return SandboxState(
        spec=spec,
        cluster_id="c",
        quorum_port=99,
        ports=ports,
        processes={},
        reader_ports=readers,
    )


def test_h21_tiered_is_bound_to_loopback_advertised_at_the_proxy_and_never_between_brokers() -> (
    None
):
    properties = broker_properties(SandboxSpec(), LAYOUT, 1, PORTS, 99)
    assert properties["advertised.listeners"] == "DIRECT://127.0.0.1:11,TIERED://127.0.0.1:14"
    assert "TIERED://127.0.0.1:12" in properties["listeners"].split(",")
    assert properties["inter.broker.listener.name"] == "DIRECT"
    assert properties["controller.listener.names"] == "CONTROLLER"


def test_brokers_have_no_listener_for_proxies_that_rewrite_addresses() -> None:
    spec = SandboxSpec(brokers=3, attach="rewrite", without=("rlm:2",))
    properties = broker_properties(spec, LAYOUT, 1, PORTS, 99)
    assert properties["listeners"] == properties["advertised.listeners"] == "DIRECT://127.0.0.1:11"
    service = rlm_config(spec, LAYOUT, 1, PORTS, "c")
    assert service["proxy.attach"] == "rewrite"
    assert service["broker.tiered.listener.name"] == "DIRECT"
    assert service["broker.tiered.address"] == service["broker.direct.address"]
    assert service["proxy.advertised"] == "127.0.0.1:14"
    assert SandboxSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_h30_the_changed_defaults_are_the_ones_in_the_document() -> None:
    spec = SandboxSpec(overrides=(Override.parse("broker.log.retention.check.interval.ms=300000"),))
    changed = sandbox_document(LAYOUT, state(spec))["changed_broker_defaults"]
    assert changed["log.retention.check.interval.ms"] == "300000"
    assert changed["log.segment.delete.delay.ms"] == "1000"
    assert changed["broker.session.timeout.ms"] == "3000"
    assert changed["log.flush.start.offset.checkpoint.interval.ms"] == "1000"
    properties = broker_properties(spec, LAYOUT, 1, PORTS, 99)
    assert {key: properties[key] for key in changed} == changed


@pytest.mark.parametrize(("brokers", "factor", "isr"), [(1, "1", "1"), (3, "3", "2")])
def test_internal_topics_fit_the_number_of_brokers(brokers: int, factor: str, isr: str) -> None:
    changed = changed_broker_defaults(SandboxSpec(brokers=brokers))
    assert changed["offsets.topic.replication.factor"] == factor
    assert changed["transaction.state.log.replication.factor"] == factor
    assert changed["transaction.state.log.min.isr"] == isr


def test_three_brokers_have_a_quorum_that_outlives_each_of_them() -> None:
    spec = SandboxSpec(brokers=3)
    assert stages(spec)[0] == ("controller",)
    assert controller_properties(spec, LAYOUT, 99)["process.roles"] == "controller"
    for node in spec.broker_ids:
        properties = broker_properties(spec, LAYOUT, node, PORTS, 99)
        assert properties["process.roles"] == "broker"
        assert properties["controller.quorum.voters"] == "100@127.0.0.1:99"


def test_with_zookeeper_a_broker_has_no_role_in_kraft_and_the_quorum_is_zookeeper() -> None:
    spec = SandboxSpec(mode="zookeeper", kafka_version="3.9.2")
    assert stages(spec)[:2] == (("zookeeper",), ("plugin:1", "broker:1"))
    properties = broker_properties(spec, LAYOUT, 1, PORTS, 99)
    assert properties["broker.id"] == "1"
    assert properties["zookeeper.connect"] == "127.0.0.1:99"
    assert not {"node.id", "process.roles", "controller.quorum.voters"} & properties.keys()
    assert "CONTROLLER" not in properties["listeners"]
    assert zookeeper_properties(LAYOUT, 99)["clientPort"] == "99"


def test_brokers_of_several_versions_have_a_controller_of_the_oldest() -> None:
    spec = SandboxSpec(brokers=3, kafka_version="3.10.1,3.9.2,4.3.0")
    assert [spec.version_of(node) for node in spec.broker_ids] == ["3.10.1", "3.9.2", "4.3.0"]
    assert spec.version_of(CONTROLLER_NODE_ID) == "3.9.2"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "zookeeper"}, "no ZooKeeper; give --kafka-version 3.9.2"),
        ({"mode": "raft"}, "allowed are kraft and zookeeper"),
        ({"attach": "proxy"}, "allowed are listener and rewrite"),
        ({"without": ("rlm:2",)}, "allowed are rlm:1"),
        ({"without": ("rlm:1",), "services": False}, "none with --brokers-only"),
        ({"kafka_version": "3.9.2,4.3.0"}, "one version, or one for each broker"),
        ({"brokers": 3, "kafka_home": "/k", "kafka_version": "4,4,4"}, "--kafka-home has one"),
    ],
)
def test_versions_that_do_not_go_together_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SandboxError, match=reason):
        SandboxSpec(**options)


def test_kafka_before_4_gets_the_logging_options_of_its_own() -> None:
    for version, option in (("3.9.2", "-Dlog4j."), ("4.0.2", "-Dlog4j2.")):
        dist = KafkaDist(version=version, jars=(), java=Path("java"), cache=Path("/c"))
        assert any(word.startswith(option) for word in node_command(dist, SandboxSpec(), LAYOUT, 1))


def test_the_readme_has_the_versions_that_are_tested() -> None:
    assert support_table() in (ROOT / "README.md").read_text("utf-8")
    assert SUPPORTED_KAFKA[0].line == OLDEST_KAFKA
    lines = [version_key(one.line) for one in SUPPORTED_KAFKA]
    assert lines == sorted(set(lines))
    assert KAFKA_VERSION.startswith(tuple(one.line for one in SUPPORTED_KAFKA))
    known = {one.version for one in SUPPORTED_KAFKA}
    assert all(version in known for versions in MIXED_KAFKA for version in versions.split(","))
    assert all(is_before_4(one.version) for one in SUPPORTED_KAFKA if "zookeeper" in one.modes)


def test_the_metadata_log_is_apart_from_the_disks_that_tests_empty() -> None:
    spec = SandboxSpec(log_dirs=2)
    properties = broker_properties(spec, LAYOUT, 1, PORTS, 99)
    assert properties["log.dirs"] == "/d/broker-1/logs-1,/d/broker-1/logs-2"
    assert properties["metadata.log.dir"] not in properties["log.dirs"].split(",")


def test_native_tiering_comes_with_a_store_of_its_own() -> None:
    properties = broker_properties(SandboxSpec(native_tiering=True), LAYOUT, 1, PORTS, 99)
    assert properties["remote.log.storage.system.enable"] == "true"
    assert properties["rsm.config.dir"] == "/d/native-store"
    assert properties["rlmm.config.remote.log.metadata.topic.replication.factor"] == "1"


@pytest.mark.parametrize("value", ["/a b", "C:\\x", "/é", "a=b:c#d!"])
def test_properties_survive_their_text_form(value: str) -> None:
    assert encode_properties({"k": "\U0001f600"}) == "k=\\ud83d\\ude00\n"
    assert parse_properties(encode_properties({"k": value}).encode()) == {"k": value}
    assert encode_properties({"k": value}).isascii()


@pytest.mark.parametrize("brokers", [1, 3])
def test_services_accept_their_configuration(brokers: int) -> None:
    spec = SandboxSpec(brokers=brokers, overrides=(Override.parse("rlm.sweep.grace.ms=7"),))
    plan = state(spec)
    for node in spec.broker_ids:
        content = rlm_config(spec, LAYOUT, node, plan.ports, "c")
        del content["broker.server.properties"]  # not written in this test
        config = from_mapping(content)
        assert config.node_id == node
        assert config.sweep_grace_ms == 7
        assert len(config.kafka_bootstrap_servers) == brokers
        store = sandbox_store(LAYOUT, plan).plugin_settings()
        plugin = settings_of(plugin_config(spec, plan.ports[node], store))
        assert plugin.listen == str(config.stores[0].address)


@pytest.mark.parametrize("node", [1, 3])
def test_the_service_finds_its_listeners_in_the_brokers_file(node: int) -> None:
    identity = broker_identity(broker_properties(SandboxSpec(brokers=3), LAYOUT, node, PORTS, 99))
    assert identity.node_id == node
    assert identity.listeners["TIERED"].port == PORTS[node].tiered
    assert identity.listeners[identity.inter_broker_listener or ""].port == PORTS[node].direct


def test_state_survives_its_text_form() -> None:
    spec = SandboxSpec(brokers=3, overrides=(Override.parse("broker.a.b=c=d"),))
    assert SandboxState.from_json(state(spec).to_json()) == state(spec)


def test_an_override_keeps_dots_and_equals_signs() -> None:
    override = Override.parse("broker.a.b = c=d")
    assert (override.scope, override.key, override.value) == ("broker", "a.b", "c=d")


@pytest.mark.parametrize("text", ["", "broker", "broker.=1", "other.a=1", "a=1"])
def test_an_override_without_scope_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(SandboxError, match="expected"):
        Override.parse(text)


def test_ports_are_held_until_released() -> None:
    with PortReservation() as ports:
        taken = [ports.take() for _ in range(20)]
        assert len(set(taken)) == 20
        assert not any(port_is_free(port) for port in taken)
        ports.release(taken[0])
        assert port_is_free(taken[0])
        ports.lend(taken[1])
        assert port_is_free(taken[1]), "its own server can listen"
        ports.lend_all()
        assert all(port_is_free(port) for port in taken)
    assert all(port_is_free(port) for port in taken)


def test_nobody_takes_a_port_that_is_lent_while_its_server_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with PortReservation() as ours, PortReservation() as theirs:
        lent = ours.take()
        ours.lend(lent)
        choices = iter([lent, lent, lent + 1 if lent < 30_000 else 20_000])
        monkeypatch.setattr(
            sandbox_ports, "_kernels_choice", lambda: next(choices) - sandbox_ports._LOWEST
        )
        assert theirs.take() != lent
        assert theirs.hold(lent), "as a server of the sandbox would"


def test_claims_end_with_the_sandbox_object() -> None:
    claimed = PortReservation()
    port = claimed.take()
    claimed.lend(port)
    del claimed
    with PortReservation() as later:
        assert sandbox_ports._is_unclaimed(port)
        assert later.hold(port)


def test_readers_come_last_and_are_listed_in_the_document() -> None:
    overrides = (
        Override.parse("rlm.fetch.chunk.cache.bytes=2097152"),
        Override.parse("rlm.trim.interval.ms=1000"),
    )
    plan = state(SandboxSpec(brokers=3, readers=2, overrides=overrides))
    assert stages(plan.spec)[-1] == ("reader:1", "reader:2")
    assert sandbox_document(LAYOUT, plan)["readers"] == [
        {"grpc": "127.0.0.1:201", "http": "127.0.0.1:301", "pid": None},
        {"grpc": "127.0.0.1:202", "http": "127.0.0.1:302", "pid": None},
    ]
    config = reader_from_mapping(reader_config(LAYOUT, plan, 2))
    assert config.fetch_chunk_cache_bytes == 2097152
    assert [one.port for one in config.kafka_bootstrap_servers] == [11, 21, 31]
    assert str(config.stores[0].address) == "127.0.0.1:27"
    assert SandboxState.from_json(plan.to_json()) == plan


def test_a_sandbox_of_before_there_were_readers_is_still_known() -> None:
    content = state(SandboxSpec()).to_json()
    del content["reader_ports"], content["spec"]["readers"]
    assert SandboxState.from_json(content) == state(SandboxSpec())


@pytest.mark.parametrize("readers", [17, -1])
def test_so_many_readers_there_are_not(readers: int) -> None:
    with pytest.raises(SandboxError, match="0 to 16"):
        SandboxSpec(readers=readers)
    with pytest.raises(SandboxError, match="brokers-only"):
        SandboxSpec(readers=1, services=False)
