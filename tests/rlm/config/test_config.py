"""The settings of `rlm serve`: what is read, filled in and refused, each refusal in one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from build_tools.reference.settings import generate_service_docs
from kip405.addresses import MAX_UNIX_PATH_BYTES, Address
from kip405.errors import Invalid
from kip405.settings import PATH, Setting, names_secret_file
from rlm.config import ServiceConfig, load, load_reader
from rlm.config.service import ReaderConfig, settings
from rlm.config.stores import RULE_ROWS, STORE_ROWS
from tests.builders.service import broker_config

SHAPED = ("stores", "storage.endpoint.rules", "offload.rules", "proxy.history.rules")
"""Only the shape of a wrong value is shown."""
SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=3
log.dirs={logs}
listeners=DIRECT://0.0.0.0:19092,TIERED://127.0.0.1:19093,CONTROLLER://:19094
inter.broker.listener.name=DIRECT
controller.listener.names=CONTROLLER
"""
META_PROPERTIES = "version=1\ncluster.id=c1\nnode.id=3\n"


@pytest.fixture
def given(given: dict[str, Any]) -> dict[str, Any]:
    """With a plugin, and a proxy that clients of other machines reach."""
    return given | {
        "proxy.listen": "0.0.0.0:9092",
        "proxy.advertised": "broker-3:9092",
        "plugin.address": "unix:/run/rsm.sock",
    }


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """server.properties of a broker with one formatted log directory."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "meta.properties").write_text(META_PROPERTIES)
    path = tmp_path / "server.properties"
    path.write_text(SERVER_PROPERTIES.format(logs=logs))
    return path


def read(tmp_path: Path, content: dict[str, Any]) -> ServiceConfig:
    path = tmp_path / "rlm.yaml"
    path.write_text(yaml.safe_dump(content))
    return load(path)


def refusal(tmp_path: Path, content: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_nested_settings_are_refused_with_their_flat_name(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    message = refusal(tmp_path, given | {"log": {"level": "info"}})
    assert message == "log: settings are not nested: write log.level: VALUE in one line"
    message = refusal(tmp_path, given | {"storage": {"layout": "blocks"}})
    assert message == "storage: settings are not nested: write storage.layout: VALUE in one line"
    assert refusal(tmp_path, given | {"lok": {"level": 1}}).startswith("lok: unknown setting")


def test_what_is_not_given_has_its_default(tmp_path: Path, given: dict[str, Any]) -> None:
    config = read(tmp_path, given)
    assert config.node_id == 3
    assert config.log_dirs == (tmp_path / "logs",)
    assert config.grpc_advertised == Address(host="127.0.0.1", port=9095)
    assert config.kafka_bootstrap_servers == (Address(host="127.0.0.1", port=19092),)
    assert [(one.name, str(one.address)) for one in config.stores] == [
        ("default", "unix:/run/rsm.sock")
    ]
    assert config.principal == "rlm-3"
    assert config.sweep_grace_ms == 3_600_000
    assert config.fetch_chunk_cache_bytes == 268_435_456
    assert config.broker_tiered_listener_name == "TIERED"


def test_h12_a_copy_is_given_up_before_its_rest_may_be_swept(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    config = read(tmp_path, given)
    assert config.copy_deadline_ms == 1_800_000
    assert read(tmp_path, given | {"sweep.grace.ms": 10_000}).copy_deadline_ms == 7_500
    words = refusal(tmp_path, given | {"sweep.grace.ms": 10_000, "copy.deadline.ms": 10_000})
    assert words.startswith("copy.deadline.ms: must be below sweep.grace.ms, which is 10000")
    refusal(tmp_path, given | {"copy.deadline.ms": 3_600_000})


def test_broker_files_fill_what_is_missing(
    tmp_path: Path, given: dict[str, Any], properties: Path
) -> None:
    for key in (
        *("node.id", "cluster.id", "log.dirs"),
        *("broker.direct.address", "broker.tiered.address"),
    ):
        del given[key]
    config = read(tmp_path, given | {"broker.server.properties": str(properties)})
    assert (config.node_id, config.cluster_id) == (3, "c1")
    assert config.log_dirs == (tmp_path / "logs",)
    assert str(config.broker_direct_address) == "127.0.0.1:19092"
    assert str(config.broker_tiered_address) == "127.0.0.1:19093"


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("node.id", 4, "server.properties"),
        ("cluster.id", "other", "meta.properties"),
        ("log.dirs", ["/elsewhere"], "server.properties"),
        ("broker.direct.address", "127.0.0.1:19093", "port 19092"),
        ("broker.tiered.address", "127.0.0.1:19092", "port 19093"),
        ("broker.tiered.listener.name", "EXTERNAL", "no listener EXTERNAL"),
    ],
)
def test_h13_what_disagrees_with_the_brokers_files_is_refused(
    tmp_path: Path, given: dict[str, Any], properties: Path, key: str, value: Any, named: str
) -> None:
    message = refusal(tmp_path, given | {"broker.server.properties": str(properties), key: value})
    assert message.startswith(f"{key}: ")
    assert named in message


def settings_row(key: str) -> Setting:
    rows: tuple[Setting, ...] = (*settings().values(), *STORE_ROWS)
    return next(row for row in rows if row.key == key)


PROTOCOLS = "listener.security.protocol.map=DIRECT:{},RLM:{},TIERED:PLAINTEXT,CONTROLLER:SSL\n"


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL", "sasl_ssl"])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_direct_listener_of_another_protocol_is_one_refusal(
    tmp_path: Path, given: dict[str, Any], properties: Path, protocol: str, is_given: bool
) -> None:
    text = properties.read_text()
    properties.write_text(text + PROTOCOLS.format(protocol, "SSL"))
    if not is_given:
        del given["broker.direct.address"]
    given |= {"broker.server.properties": str(properties)}
    message = refusal(tmp_path, given)
    assert message.startswith("kafka.security.protocol: is PLAINTEXT, and listener DIRECT of ")
    assert f"is {protocol.upper()}; set kafka.security.protocol to {protocol.upper()}" in message
    with_more = text.replace("TIERED://", "RLM://127.0.0.1:19095,TIERED://")
    properties.write_text(with_more + PROTOCOLS.format(protocol, "PLAINTEXT"))
    assert "or broker.direct.address to 127.0.0.1:19095 (listener RLM)" in refusal(tmp_path, given)
    config = read(tmp_path, given | {"broker.direct.address": "127.0.0.1:19095"})
    assert str(config.kafka_bootstrap_servers[0]) == "127.0.0.1:19095"


def test_a_direct_listener_of_the_clients_protocol_is_taken(
    tmp_path: Path, given: dict[str, Any], properties: Path
) -> None:
    properties.write_text(properties.read_text() + PROTOCOLS.format("SSL", "PLAINTEXT"))
    given |= {"broker.server.properties": str(properties), "kafka.security.protocol": "SSL"}
    assert read(tmp_path, given).kafka_security().has_tls
    del given["kafka.security.protocol"]
    assert "listener DIRECT" in refusal(tmp_path, given)


def test_h13_meta_properties_are_compared_without_server_properties(
    tmp_path: Path, given: dict[str, Any], properties: Path
) -> None:
    message = refusal(tmp_path, given | {"node.id": 7})
    assert message.startswith("node.id: 7 does not agree with 3 of ")


@pytest.mark.parametrize("name", ["DIRECT", "CONTROLLER"])
def test_h21_tiered_is_neither_inter_broker_nor_controller_listener(
    tmp_path: Path, given: dict[str, Any], properties: Path, name: str
) -> None:
    files = {"broker.server.properties": str(properties), "broker.tiered.listener.name": name}
    assert "H21" in refusal(tmp_path, given | files)


@pytest.mark.parametrize("name", ["DIRECT", "TIERED"])
def test_where_addresses_are_rewritten_any_listener_for_clients_is_good(
    tmp_path: Path, given: dict[str, Any], properties: Path, name: str
) -> None:
    """Followers come to the inter-broker listener past the proxy, as before."""
    for key in ("broker.direct.address", "broker.tiered.address"):
        del given[key]
    files = {"broker.server.properties": str(properties), "broker.tiered.listener.name": name}
    config = read(tmp_path, given | files | {"proxy.attach": "rewrite"})
    port = {"DIRECT": 19_092, "TIERED": 19_093}[name]
    assert (config.broker_tiered_address.port, config.rewrites_addresses) == (port, True)
    assert config.broker_direct_address.port == 19_092


def test_h21_a_controller_listener_is_for_no_client(
    tmp_path: Path, given: dict[str, Any], properties: Path
) -> None:
    files = {"broker.server.properties": str(properties), "proxy.attach": "rewrite"}
    wrong = {"broker.tiered.listener.name": "CONTROLLER"}
    assert "H21" in refusal(tmp_path, given | files | wrong)
    wrong = {"broker.tiered.listener.name": "CLIENTS"}
    assert "it has " in (message := refusal(tmp_path, given | files | wrong))
    assert message.endswith("name the one that clients use")


@pytest.mark.parametrize("key", [row.key for row in (*settings().values(), *STORE_ROWS)])
def test_a_wrong_type_names_the_setting_and_what_is_allowed(
    tmp_path: Path, given: dict[str, Any], key: str
) -> None:
    message = refusal(tmp_path, given | {key: {"a": 1}})
    assert message.startswith(f"{key}: must be ") or key == "stores"
    row = settings_row(key)
    is_hidden = row.secret or (row.kind is PATH and names_secret_file(key))
    assert ("got {'a': 1}" in message) is not (key in SHAPED or is_hidden)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node.id", "3"),
        ("node.id", True),
        ("sweep.grace.ms", 0),
        ("sweep.grace.ms", 1.5),
        ("allow_insecure", "yes"),
        ("log.level", "loud"),
        ("log.level", True),
        ("metrics.per.partition", "some"),
        ("state.dir", "relative/path"),
        ("log.dirs", ["/a", "/a"]),
        ("log.dirs", []),
        ("proxy.listen", "9092"),
        ("proxy.listen", "host:0"),
        ("proxy.listen", "host:65536"),
        ("proxy.listen", "unix:/run/x"),
        ("plugin.address", "unix:relative"),
        ("kafka.bootstrap.servers", "a:1,b"),
    ],
)
def test_a_value_outside_its_range_is_refused(
    tmp_path: Path, given: dict[str, Any], key: str, value: Any
) -> None:
    message = refusal(tmp_path, given | {key: value})
    assert message.startswith(f"{key}: must be ")


def test_h18_no_retention_is_given_back_that_the_service_must_not_alter(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    both = {"on.disk.pressure": "giveback", "retention.takeover": "external"}
    assert refusal(tmp_path, given | both).startswith("on.disk.pressure: must be alarm")


@pytest.mark.parametrize("key", ["state.dir", "proxy.listen", "node.id", "log.dirs"])
def test_a_missing_setting_is_named(tmp_path: Path, given: dict[str, Any], key: str) -> None:
    del given[key]
    assert refusal(tmp_path, given).startswith(f"{key}: missing; must be ")


@pytest.mark.parametrize("key", ["cluster.id", "node.id"])
@pytest.mark.parametrize(("is_there", "why"), [(False, "is not there"), (True, "has none")])
def test_a_broker_volume_that_is_not_mounted_is_named(
    tmp_path: Path, given: dict[str, Any], key: str, is_there: bool, why: str
) -> None:
    del given[key]
    (log_dir,) = given["log.dirs"]
    if is_there:
        Path(log_dir).mkdir()
    expected = f"; meta.properties of log.dirs gives it, and {log_dir} {why}"
    assert refusal(tmp_path, given).endswith(expected)


def test_an_unknown_setting_gets_the_nearest_name(tmp_path: Path, given: dict[str, Any]) -> None:
    assert "did you mean proxy.listen?" in refusal(tmp_path, given | {"proxy.listn": "a:1"})
    assert "docs/reference/settings.md" in refusal(tmp_path, given | {"qqqqqq": 1})


@pytest.mark.parametrize("key", ["grpc.listen", "http.listen", "plugin.address"])
def test_beyond_loopback_only_when_allowed(tmp_path: Path, given: dict[str, Any], key: str) -> None:
    open_wide = given | {key: "10.0.0.1:9000"}
    assert refusal(tmp_path, open_wide).startswith(f"{key}: 10.0.0.1:9000 is not loopback")
    read(tmp_path, open_wide | {"allow_insecure": True})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_has_many_names(tmp_path: Path, given: dict[str, Any], host: str) -> None:
    assert read(tmp_path, given | {"grpc.listen": f"{host}:1234"}).grpc_listen.is_private


def test_a_wildcard_cannot_be_advertised(tmp_path: Path, given: dict[str, Any]) -> None:
    del given["proxy.advertised"]
    assert refusal(tmp_path, given).startswith("proxy.advertised: must be an address to connect")


def test_a_unix_socket_path_must_fit(tmp_path: Path, given: dict[str, Any]) -> None:
    fits = "/" + "x" * (MAX_UNIX_PATH_BYTES - 1)
    [store] = read(tmp_path, given | {"plugin.address": f"unix:{fits}"}).stores
    assert store.address is not None and store.address.unix_path == fits
    message = refusal(tmp_path, given | {"plugin.address": f"unix:{fits}x"})
    assert f"has {MAX_UNIX_PATH_BYTES + 1} bytes" in message


def test_a_setting_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rlm.yaml"
    path.write_text("node.id: 1\nnode.id: 2\n")
    with pytest.raises(Invalid, match=r"^node\.id: given twice, in lines 1 and 2$"):
        load(path)


@pytest.mark.parametrize("text", ["", "- 1", "1: 2", "a: [", "a: b: c"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rlm.yaml"
    path.write_text(text)
    with pytest.raises(Invalid) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("node.id: 1\n{{ listen }}: s3cret\n", "line 2 has a key that is no text: if the"),
        ("node.id: {{ s3cret }}\n", "line 1 has a key that is no text: if the file is a template"),
        ("? [a, s3cret]\n: 1\n", "line 1 has a key that is no text"),
        ("node.id: 2026-13-45\n", "has a value that YAML cannot read (ValueError), such as a date"),
        ("node.id: !!int s3cret\n", "cannot read (ValueError), such as a date"),
        ("node.id: !!timestamp s3cret\n", "put texts in quotes"),
        ("node.id: !!bool s3cret\n", "put texts in quotes"),
        ("node.id: " + "1:" * 200 + "1.5", "put texts in quotes"),
        ("node.id: " + "[" * 5_000 + "]" * 5_000, "put texts in quotes"),
    ],
)
def test_a_key_or_value_that_yaml_cannot_construct_is_refused(
    tmp_path: Path, text: str, advice: str
) -> None:
    path = tmp_path / "rlm.yaml"
    path.write_text(text)
    with pytest.raises(Invalid) as caught:
        load(path)
    assert str(caught.value).startswith(str(path)) and advice in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read: No such file"):
        load(tmp_path / "missing.yaml")


def test_attributes_are_named_as_keys() -> None:
    for name, row in settings().items():
        assert name == row.key.replace(".", "_")


def test_docs_have_every_setting() -> None:
    text = generate_service_docs()
    for row in (*settings().values(), *STORE_ROWS, *RULE_ROWS):
        assert f"| `{row.key}` |" in text


# -- a reader's


@pytest.fixture
def reads(tmp_path: Path) -> dict[str, Any]:
    """All that a reader must be given."""
    return {
        "cluster.id": "c1",
        "state.dir": str(tmp_path / "state"),
        "kafka.bootstrap.servers": "127.0.0.1:19092,127.0.0.1:19093",
        "grpc.listen": "127.0.0.1:9095",
        "http.listen": "localhost:9096",
        "plugin.address": "unix:/run/rsm.sock",
    }


def read_reader(tmp_path: Path, content: dict[str, Any]) -> ReaderConfig:
    path = tmp_path / "reader.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_reader(path)


def test_a_reader_needs_no_broker(tmp_path: Path, reads: dict[str, Any]) -> None:
    config = read_reader(tmp_path, reads | {"fetch.chunk.cache.bytes": 1 << 21})
    assert config.principal == "rlm-reader"
    assert str(config.grpc_advertised) == "127.0.0.1:9095"
    assert config.fetch_chunk_cache_bytes == 1 << 21
    assert [str(one) for one in config.kafka_bootstrap_servers] == [
        "127.0.0.1:19092",
        "127.0.0.1:19093",
    ]
    shown = config.shown()
    assert "node.id" not in shown and shown["cluster.id"] == "c1"


@pytest.mark.parametrize(
    "key", [row.key for name, row in settings().items() if name not in settings(ReaderConfig)]
)
def test_a_reader_is_refused_what_belongs_to_a_broker(
    tmp_path: Path, reads: dict[str, Any], key: str
) -> None:
    with pytest.raises(Invalid, match=f"^{key}: a reader has no broker") as refused:
        read_reader(tmp_path, reads | {key: "anything"})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ("cluster.id", "cluster.id: missing"),
        ("kafka.bootstrap.servers", "kafka.bootstrap.servers: missing"),
        ("grpc.listen", "grpc.listen: missing"),
        ("plugin.address", "stores: missing; a reader reads from stores"),
    ],
)
def test_a_reader_lacks_something(
    tmp_path: Path, reads: dict[str, Any], without: str, words: str
) -> None:
    del reads[without]
    with pytest.raises(Invalid, match=words):
        read_reader(tmp_path, reads)


def test_a_readers_addresses_are_checked_as_a_services(
    tmp_path: Path, reads: dict[str, Any]
) -> None:
    with pytest.raises(Invalid, match=r"grpc\.listen: .* has no TLS"):
        read_reader(tmp_path, reads | {"grpc.listen": "10.0.0.1:9095"})
    with pytest.raises(Invalid, match="did you mean"):
        read_reader(tmp_path, reads | {"cluster.ids": "c1"})


@pytest.mark.parametrize("word", ["auto", "on", "off"])
def test_on_and_off_are_the_words_that_they_are_in_the_file(tmp_path: Path, word: str) -> None:
    content = yaml.safe_load(f"metrics.per.partition: {word}")
    assert broker_config(tmp_path, content).metrics_per_partition == word
