"""What keeps a service from starting: disks, broker and listeners that are not as they must be."""

from pathlib import Path

import pytest

from kafka_protocol.apis import API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS
from kip405.errors import Invalid, Unavailable
from rlm.broker.own_broker import OwnBroker
from rlm.broker.versions import UPDATE_FEATURES_KEY
from rlm.config import ServiceConfig, load
from rlm.log_dir.identity import BrokerIdentity
from rlm.service.lifetime import check_broker, check_disks, check_listeners
from tests.builders.fake_broker import FakeBroker

GIVEN = """\
node.id: 3
cluster.id: c1
log.dirs: [{path}]
state.dir: {path}/state
broker.direct.address: 127.0.0.1:19092
broker.tiered.address: 127.0.0.1:19093
proxy.listen: 127.0.0.1:9092
proxy.advertised: broker-3:9092
grpc.listen: 127.0.0.1:9095
http.listen: localhost:9096
plugin.address: unix:/run/rsm.sock
"""
SAFE: dict[str, str | None] = {
    "inter.broker.listener.name": "DIRECT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "DIRECT:PLAINTEXT,TIERED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "advertised.listeners": "DIRECT://broker-3:19092,TIERED://broker-3:9092",
    "authorizer.class.name": "",
}


@pytest.fixture
def config(tmp_path: Path) -> ServiceConfig:
    return configured(tmp_path)


def configured(tmp_path: Path, more: str = "") -> ServiceConfig:
    path = tmp_path / "rlm.yaml"
    path.write_text(GIVEN.format(path=tmp_path) + more)
    return load(path)


def test_a_safe_broker_is_accepted(config: ServiceConfig) -> None:
    check_listeners(config, SAFE)


@pytest.mark.parametrize(
    "changed",
    [
        {"inter.broker.listener.name": "TIERED"},
        {"inter.broker.listener.name": "tiered"},
        {"controller.listener.names": "TIERED"},
        {"controller.listener.names": "CONTROLLER, Tiered"},
    ],
)
def test_h21_replication_or_control_over_tiered_is_refused(
    config: ServiceConfig, changed: dict[str, str | None]
) -> None:
    with pytest.raises(Invalid, match="listener TIERED is"):
        check_listeners(config, SAFE | changed)


@pytest.mark.parametrize(
    "unnamed",
    [
        {"inter.broker.listener.name": None},
        {"inter.broker.listener.name": None, "security.inter.broker.protocol": "PLAINTEXT"},
    ],
)
def test_h21_an_inter_broker_listener_may_be_named_by_its_protocol(
    tmp_path: Path, unnamed: dict[str, str | None]
) -> None:
    config = configured(tmp_path, "broker.tiered.listener.name: PLAINTEXT\n")
    with pytest.raises(Invalid, match="inter-broker"):
        check_listeners(config, SAFE | unnamed)
    check_listeners(config, SAFE | unnamed | {"security.inter.broker.protocol": "SASL_SSL"})


def secured(protocol: str) -> dict[str, str | None]:
    return SAFE | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "listener.security.protocol.map": f"DIRECT:SSL,TIERED:{protocol},CONTROLLER:SSL",
    }


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "sasl_ssl"])
@pytest.mark.parametrize("more", ["", "allow_shared_identity: true\n"])
def test_h23_a_tiered_listener_that_the_proxy_cannot_read_is_refused(
    tmp_path: Path, protocol: str, more: str
) -> None:
    config = configured(tmp_path, more)
    for broker_config in (secured(protocol), secured(protocol) | {"authorizer.class.name": ""}):
        with pytest.raises(Invalid, match=f"TIERED is {protocol.upper()}.*SASL_PLAINTEXT"):
            check_listeners(config, broker_config)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_with_its_authority_a_tiered_listener_may_have_tls(tmp_path: Path, protocol: str) -> None:
    config = configured(tmp_path, f"broker.tiered.tls.ca.file: {tmp_path}/ca.pem\n")
    check_listeners(config, secured(protocol) | {"authorizer.class.name": ""})
    with pytest.raises(Invalid, match="listener TIERED is PLAINTEXT, without TLS"):
        check_listeners(config, SAFE)
    with pytest.raises(Invalid, match="TIERED is SSL: all clients would be one identity"):
        check_listeners(config, secured("SSL"))
    check_listeners(config, secured("SASL_SSL"))


@pytest.mark.parametrize("protocol", ["PLAINTEXT"])
def test_h23_an_authorizer_that_would_see_one_identity_is_refused(
    config: ServiceConfig, protocol: str
) -> None:
    with pytest.raises(Invalid, match=f"TIERED is {protocol}.*allow_shared_identity"):
        check_listeners(config, secured(protocol))


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "sasl_plaintext"])
def test_h23_clients_with_their_own_identity_are_accepted(
    config: ServiceConfig, protocol: str
) -> None:
    check_listeners(config, secured(protocol))


def test_h23_a_listener_without_protocol_is_not_taken_for_a_safe_one(
    config: ServiceConfig,
) -> None:
    with pytest.raises(Invalid, match="one identity"):
        check_listeners(config, secured("SASL_SSL") | {"listener.security.protocol.map": None})


def test_h23_a_shared_identity_may_be_allowed(tmp_path: Path) -> None:
    check_listeners(configured(tmp_path, "allow_shared_identity: true\n"), secured("PLAINTEXT"))


ADVERTISED = "DIRECT://broker-3:19092,TIERED://{}"


@pytest.mark.parametrize("advertised", ["broker-3:19093", "other:9092", "127.0.0.1:9092"])
def test_h23_clients_that_would_not_come_to_the_proxy_are_a_refusal(
    tmp_path: Path, advertised: str
) -> None:
    """A client that goes past the proxy reads nothing that was trimmed."""
    broker_config = SAFE | {"advertised.listeners": ADVERTISED.format(advertised)}
    words = rf"TIERED at {advertised} and proxy.advertised is broker-3:9092.*allow_other_advertised"
    with pytest.raises(Invalid, match=words):
        check_listeners(configured(tmp_path), broker_config)
    check_listeners(configured(tmp_path, "allow_other_advertised: true\n"), broker_config)


@pytest.mark.parametrize("advertised", ["BROKER-3:9092", "broker-3:9092"])
def test_h23_the_advertised_address_is_compared_as_a_host_name(
    config: ServiceConfig, advertised: str
) -> None:
    check_listeners(config, SAFE | {"advertised.listeners": ADVERTISED.format(advertised)})


def test_h23_a_broker_that_does_not_say_where_clients_go_is_not_refused(
    config: ServiceConfig,
) -> None:
    for advertised in (None, "", "TIERED://:9092", "DIRECT://elsewhere:1"):
        check_listeners(config, SAFE | {"advertised.listeners": advertised})


REWRITE = "proxy.attach: rewrite\nbroker.tiered.listener.name: {}\n"


@pytest.mark.parametrize("listener", ["DIRECT", "TIERED"])
def test_where_addresses_are_rewritten_the_broker_advertises_itself(
    tmp_path: Path, listener: str
) -> None:
    config = configured(tmp_path, REWRITE.format(listener))
    own = SAFE | {"advertised.listeners": "DIRECT://broker-3:1,TIERED://broker-3:2"}
    check_listeners(config, own)
    itself = {"advertised.listeners": f"{listener}://BROKER-3:9092"}
    with pytest.raises(Invalid, match=f"proxy.advertised is broker-3:9092.*{listener} itself"):
        check_listeners(config, own | itself)
    allowing = REWRITE.format(listener) + "allow_other_advertised: true\n"
    check_listeners(configured(tmp_path, allowing), own | itself)


def test_h21_h23_what_a_rewritten_listener_must_not_be(tmp_path: Path) -> None:
    own = SAFE | {"advertised.listeners": "DIRECT://broker-3:1,TIERED://broker-3:2"}
    with pytest.raises(Invalid, match="controller listener"):
        check_listeners(configured(tmp_path, REWRITE.format("CONTROLLER")), own)
    config = configured(tmp_path, REWRITE.format("DIRECT"))
    protocols = {"listener.security.protocol.map": "DIRECT:SSL"}
    with pytest.raises(Invalid, match=r"DIRECT is SSL, .*; give broker"):
        check_listeners(config, own | protocols)
    with pytest.raises(Invalid, match="one identity"):
        check_listeners(config, own | {"authorizer.class.name": "x"})


def test_h23_without_advertised_listeners_a_broker_advertises_what_it_binds(
    config: ServiceConfig,
) -> None:
    bound = {"advertised.listeners": None, "listeners": ADVERTISED.format("127.0.0.1:19093")}
    with pytest.raises(Invalid, match=r"TIERED at 127\.0\.0\.1:19093"):
        check_listeners(config, SAFE | bound)


def test_h13_disks_of_another_node_or_cluster_are_refused(config: ServiceConfig) -> None:
    check_disks(config, BrokerIdentity(cluster_id="c1", node_id=3))
    for identity in (
        BrokerIdentity(cluster_id="c2", node_id=3),
        BrokerIdentity(cluster_id="c1", node_id=4),
    ):
        with pytest.raises(Invalid):
            check_disks(config, identity)


def kafka_3_3(update_features: int = 1) -> dict[str, object]:
    row = {"api_key": UPDATE_FEATURES_KEY, "min_version": 0, "max_version": update_features}
    return {"error_code": 0, "api_keys": [row]}


@pytest.mark.parametrize("answer", [kafka_3_3(update_features=0), {"api_keys": []}])
async def test_a_broker_older_than_kafka_3_3_is_refused_before_it_is_asked_anything_else(
    config: ServiceConfig, answer: dict[str, object]
) -> None:
    async with FakeBroker().running() as broker:
        broker.on(API_VERSIONS, answer)
        own = OwnBroker(broker.address, client_id="test")
        with pytest.raises(Invalid, match=r"older than Kafka 3\.3.*upgrade the broker"):
            await check_broker(config, own)
        broker.on(API_VERSIONS, {"error_code": 35, "api_keys": []})
        with pytest.raises(Unavailable, match="error 35"):
            await check_broker(config, own)
        await own.close()


async def test_h13_the_broker_must_be_of_our_cluster_and_our_node(config: ServiceConfig) -> None:
    async with FakeBroker().running() as broker:
        broker.on(API_VERSIONS, kafka_3_3())
        rows = [{"name": name, "value": value} for name, value in SAFE.items()]
        broker.on(DESCRIBE_CLUSTER, {"cluster_id": "c1"})
        broker.on(DESCRIBE_CONFIGS, {"results": [{"configs": rows}]})
        own = OwnBroker(broker.address, client_id="test")
        await check_broker(config, own)
        assert broker.asked(DESCRIBE_CONFIGS)[0]["resources"][0]["resource_name"] == "3"
        broker.on(DESCRIBE_CONFIGS, {"results": [{"error_code": 42}]})
        with pytest.raises(Invalid, match="node 3"):
            await check_broker(config, own)
        broker.on(DESCRIBE_CLUSTER, {"cluster_id": "c2"})
        with pytest.raises(Invalid, match="cluster c2"):
            await check_broker(config, own)
        await own.close()
    with pytest.raises(Unavailable):
        await check_broker(config, own)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_h23_delegation_tokens_need_a_listener_with_sasl(tmp_path: Path, protocol: str) -> None:
    tls = f"broker.tiered.tls.ca.file: {tmp_path}/ca.pem\n" if protocol == "SSL" else ""
    config = configured(
        tmp_path,
        f"proxy.tls.cert.file: {tmp_path}/cert.pem\n"
        f"proxy.tls.key.file: {tmp_path}/key.pem\n"
        f"proxy.tls.client.ca.file: {tmp_path}/ca.pem\n"
        "proxy.tls.client.auth: required\n"
        "proxy.tls.client.identity: delegation-token\n"
        "kafka.security.protocol: SSL\n"
        f"kafka.ssl.keystore.location: {tmp_path}/rlm.pem\n" + tls,
    )
    with pytest.raises(
        Invalid, match=r"proxy\.tls\.client\.identity: .*SASL_PLAINTEXT or SASL_SSL"
    ):
        check_listeners(config, secured(protocol))
    check_listeners(config, secured("SASL_PLAINTEXT" if protocol == "PLAINTEXT" else "SASL_SSL"))
