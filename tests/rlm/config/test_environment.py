"""Settings in the environment: each has one variable, which wins over the file."""

import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Invalid
from kip405.settings import Secret
from rlm.config.environment import (
    COMMAND_VARIABLES,
    naming_variables,
    overridden,
    value_of,
    variables,
    withheld_variables,
)
from rlm.config.loader import from_mapping, reader_from_mapping
from rlm.config.refusals import CollectedRefusals, Refusals
from rlm.config.secured import environment_name
from rlm.config.service import settings
from rlm.config.stores import STORE_ROWS
from rsm_plugins.store_kinds import KIND_NAMES, kind_settings
from tests.project.tree import ROOT, texts

HIDDEN = "hidden-from-all"


def test_no_two_settings_have_one_variable() -> None:
    kinds = {row.key for name in KIND_NAMES for row in kind_settings(name)}
    keys = {row.key for row in (*settings().values(), *STORE_ROWS)} | kinds
    names = Counter(environment_name(key) for key in keys)
    assert [name for name, count in names.items() if count > 1] == []
    assert names.keys() - variables().keys() == {
        environment_name(key) for key in keys if key.endswith(".*")
    }
    assert len(names) > 150


def test_no_setting_has_a_variable_of_commands() -> None:
    assert COMMAND_VARIABLES & variables().keys() == set()


def test_the_variable_follows_from_the_key() -> None:
    assert environment_name("proxy.listen") == "RLM_PROXY_LISTEN"
    assert environment_name("allow_insecure") == "RLM_ALLOW_INSECURE"
    assert variables()["RLM_RSM_CONFIG_HDFS_CORE_SITE_PATH"].key == (
        "rsm.config.hdfs.core-site.path"
    )


def test_no_variable_of_a_setting_is_for_children() -> None:
    """A structure may have secrets in it, as RLM_STORES has those of every store."""
    assert {"RLM_STORES", "RLM_RSM_CONFIG_AWS_ACCESS_KEY_ID"} < withheld_variables()
    assert withheld_variables() == variables().keys()


def test_the_variables_of_all_secrets() -> None:
    assert sorted(name for name, row in variables().items() if row.secret) == [
        "RLM_KAFKA_SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET",
        "RLM_KAFKA_SASL_PASSWORD",
        "RLM_KAFKA_SSL_KEY_PASSWORD",
        "RLM_RSM_CONFIG_AWS_ROLE_EXTERNAL_ID",
        "RLM_RSM_CONFIG_AWS_SECRET_ACCESS_KEY",
        "RLM_RSM_CONFIG_AWS_SESSION_TOKEN",
    ]


@pytest.mark.parametrize(
    ("variable", "text", "attribute", "expected"),
    [
        ("RLM_PROXY_LISTEN", "127.0.0.1:7", "proxy_listen", "127.0.0.1:7"),
        ("RLM_NODE_ID", "7", "node_id", 7),
        ("RLM_ALLOW_INSECURE", "true", "allow_insecure", True),
        ("RLM_PROXY_WORKERS", "auto", "proxy_workers", "auto"),
        ("RLM_PROXY_WORKERS", "2", "proxy_workers", 2),
        ("RLM_PRINCIPAL", "007", "principal", "007"),
        ("RLM_REMOTE_FETCH_CPU_MAX_CORES", "1.5", "remote_fetch_cpu_max_cores", 1.5),
        ("RLM_LOG_DIRS", "/a,/b", "log_dirs", (Path("/a"), Path("/b"))),
        ("RLM_LOG_DIRS", "[/a, /b]", "log_dirs", (Path("/a"), Path("/b"))),
        ("RLM_KAFKA_SASL_PASSWORD", "0x1F: [", "kafka_sasl_password", Secret("0x1F: [")),
    ],
)
def test_a_variable_wins_over_the_file(
    given: dict[str, Any], variable: str, text: str, attribute: str, expected: object
) -> None:
    meta = dict.fromkeys(("broker.server.properties",))
    content = {**given, **meta, "node.id": 1, "principal": "of-file", "log.dirs": ["/a", "/b"]}
    found = overridden(content, {variable: text}, Refusals())
    row = settings()[attribute]
    value = row.read(found[row.key])
    assert (str(value) if attribute == "proxy_listen" else value) == expected


def test_structures_are_yaml(given: dict[str, Any], tmp_path: Path) -> None:
    environment = {
        "RLM_STORES": f"{{hot: {{plugin: local, rsm.config.root: {tmp_path}}}}}",
        "RLM_STORAGE_ENDPOINT_RULES": "[{topics: 'a.*', store: hot}]",
        "RLM_OFFLOAD_RULES": "[{topics: 'a.*', offload.deletion.lag.ms: 5}]",
        "RLM_PROXY_HISTORY": "7d",
    }
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/meta.properties").write_text("version=1\ncluster.id=c1\nnode.id=3\n")
    config = from_mapping(given, environment)
    assert [store.name for store in config.stores] == ["hot"]
    assert [rule.store for rule in config.storage_endpoint_rules] == ["hot"]
    assert config.offload_rules[0].thresholds.deletion_lag_ms == 5
    assert config.shown()["proxy.history"] == "604800000ms"


def reader(tmp_path: Path, **environment: str) -> Any:
    content = {"state.dir": str(tmp_path), "grpc.listen": "127.0.0.1:1"}
    return reader_from_mapping(content, environment)


OF_READER = {
    "RLM_CLUSTER_ID": "c1",
    "RLM_HTTP_LISTEN": "127.0.0.1:2",
    "RLM_KAFKA_BOOTSTRAP_SERVERS": "b1:9092,b2:9092",
    "RLM_PLUGIN": "s3",
    "RLM_RSM_CONFIG_S3_BUCKET_NAME": "archive",
    "RLM_RSM_CONFIG_S3_REGION": "eu-central-1",
    "RLM_RSM_CONFIG_AWS_ACCESS_KEY_ID": HIDDEN,
    "RLM_RSM_CONFIG_AWS_SECRET_ACCESS_KEY": f"{HIDDEN}-too",
}


def test_a_store_and_its_credentials_come_from_the_environment(tmp_path: Path) -> None:
    config = reader(tmp_path, **OF_READER)
    [store] = config.stores
    assert store.config["rsm.config.aws.secret.access.key"] == f"{HIDDEN}-too"
    assert HIDDEN not in f"{config.shown()}{config!r}"


def test_a_secret_and_its_file_replace_each_other() -> None:
    secret, file = "kafka.sasl.password", "kafka.sasl.password.file"
    of_secret = {"RLM_KAFKA_SASL_PASSWORD": HIDDEN}
    of_file = {"RLM_KAFKA_SASL_PASSWORD_FILE": "/etc/pw"}
    assert overridden({file: "/f"}, of_secret, Refusals()) == {secret: HIDDEN}
    assert overridden({secret: "s"}, of_file, Refusals()) == {file: "/etc/pw"}
    both = overridden({}, of_secret | of_file, Refusals())
    assert both == {secret: HIDDEN, file: "/etc/pw"}, "which is refused, as in a file"


def test_a_wrong_secret_is_not_shown() -> None:
    row = variables()["RLM_KAFKA_SASL_PASSWORD"]
    with pytest.raises(Invalid, match=r"^RLM_KAFKA_SASL_PASSWORD: must be a text$"):
        value_of(row, "", "RLM_KAFKA_SASL_PASSWORD")


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("RLM_NODE_ID", "seven", "RLM_NODE_ID: must be a whole number of at least 0, got 'seven'"),
        ("RLM_PROXY_LISTEN", "80", "RLM_PROXY_LISTEN: must be host:port"),
        ("RLM_PROXY_LISTN", "x", "RLM_PROXY_LISTN: .* did you mean RLM_PROXY_LISTEN?"),
        ("RLM_LOG_COLOUR", "x", "RLM_LOG_COLOUR: no setting has this variable; docs/reference"),
        ("RLM_STORES_HOT_PLUGIN", "s3", "RLM_STORES_HOT_PLUGIN: no setting has this variable"),
    ],
)
def test_what_is_refused_names_the_variable(variable: str, text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        overridden({}, {variable: text}, Refusals())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{hot: {plugin: s3}, hot: {plugin: local}}", "RLM_STORES: hot: given twice"),
        ("{hot: [", "RLM_STORES is not YAML: line 1, column 8"),
        ("{[a]: b}", "RLM_STORES: line 1 has a key that is no text"),
        ("!!int ''", "RLM_STORES has a value that YAML cannot read .IndexError"),
        ("!!timestamp x", "RLM_STORES has a value that YAML cannot read .AttributeError"),
        ("!!bool x", "RLM_STORES has a value that YAML cannot read .KeyError"),
        ("[" * 5000, "RLM_STORES has a value that YAML cannot read .RecursionError"),
    ],
)
def test_yaml_in_a_variable_is_read_as_in_the_file(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=f"^{message}"):
        overridden({}, {"RLM_STORES": text}, Refusals())


@pytest.mark.parametrize("text", ["!!int ''", "!!timestamp x", "!!bool x", "{a: 1, a: 1}"])
def test_a_number_that_is_no_yaml_is_refused_as_it_was_written(text: str) -> None:
    with pytest.raises(Invalid, match=r"^RLM_NODE_ID: must be a whole number of .*, got "):
        overridden({}, {"RLM_NODE_ID": text}, Refusals())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state.dir", "/\0x"),
        ("remote.fetch.cpu.max.cores", 10**400),
        ("proxy.history", b"7d"),
    ],
)
def test_what_no_setting_can_hold_is_refused(given: dict[str, Any], key: str, value: Any) -> None:
    with pytest.raises(Invalid, match=f"^{key}: must be "):
        from_mapping({**given, key: value}, {})


@pytest.mark.parametrize(
    "variable",
    [
        *sorted(COMMAND_VARIABLES),
        *(
            "RLM_TEST_WORKERS",
            "RLM_TEST_LAYOUT",
            "RLM_TEST_REMOTE_INDEX",
            "RLM_KEEP_SANDBOX",
            "RLM_ONE_SANDBOX",
            "RLM_SCENARIO_SANDBOX",
        ),
        *("RLM_SOAK_CONNECTIONS", "RLM_FUZZ_CPU_S", "RLM_SANDBOX_ANY"),
        *("RLM_SERVICE_HOST", "RLM_SERVICE_PORT", "RLM_SERVICE_PORT_GRPC"),
        *("RLM_PORT_19092_TCP_ADDR", "RLM_KAFKA_SERVICE_HOST", "RLM_PROXY_PORT_19092_TCP"),
        "PATH",
    ],
)
def test_variables_of_others_are_passed_over(variable: str) -> None:
    assert overridden({"node.id": 1}, {variable: "x"}, Refusals()) == {"node.id": 1}


@pytest.mark.parametrize("variable", ["RLM_PORT", "RLM_HTTP_PORT", "RLM_PROXY_PORT"])
def test_the_address_of_a_service_of_kubernetes_is_passed_over(variable: str) -> None:
    for scheme in ("tcp", "udp", "sctp"):
        assert overridden({}, {variable: f"{scheme}://10.0.0.11:80"}, Refusals()) == {}


@pytest.mark.parametrize("text", ["8080", "tcp", "127.0.0.1:8080", "x=tcp://h:1"])
def test_a_port_alone_was_meant_for_a_setting(text: str) -> None:
    with pytest.raises(Invalid, match=r"^RLM_HTTP_PORT: no setting has this variable; docs/"):
        overridden({}, {"RLM_HTTP_PORT": text}, Refusals())


def test_every_variable_that_this_project_uses_is_known_or_passed_over() -> None:
    """So that nobody adds one by which every service would refuse to start."""
    import re

    used = {
        name
        for path in texts()
        if path.suffix in (".py", "") and path.relative_to(ROOT).parts[:2] != ("tests", "rlm")
        for name in re.findall(r"\bRLM_[A-Z][A-Z0-9_]*[A-Z0-9]\b", path.read_text("utf-8"))
    }
    refusals = CollectedRefusals()
    overridden({}, dict.fromkeys(used - variables().keys(), "x"), refusals)
    assert [str(one) for one in refusals.found] == []
    assert len(used) > 15


def test_no_variable_of_a_setting_is_taken_for_one_of_kubernetes() -> None:
    for name, row in variables().items():
        if row.kind.is_structure or row.secret:
            continue
        refusals = CollectedRefusals()
        overridden({}, {f"{name}X": "1"}, refusals)
        assert refusals.found, f"{name}X"


def test_a_refusal_between_settings_names_the_variable(
    given: dict[str, Any], tmp_path: Path
) -> None:
    content = {**given, "copy.deadline.ms": 50}
    with pytest.raises(Invalid) as refused:
        from_mapping(content, {"RLM_SWEEP_GRACE_MS": "50"})
    assert str(refused.value) == (
        "copy.deadline.ms: must be below sweep.grace.ms, which is 50, got 50 "
        "(RLM_SWEEP_GRACE_MS gives sweep.grace.ms)"
    )
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs/meta.properties").write_text("version=1\ncluster.id=c1\nnode.id=3\n")
    with pytest.raises(Invalid, match=r" of .*meta.properties \(RLM_NODE_ID gives node.id\)$"):
        from_mapping(given, {"RLM_NODE_ID": "4"})
    with pytest.raises(Invalid, match=r"^stores.hot.plugin: .* \(RLM_STORES gives stores\)$"):
        reader_from_mapping({}, {"RLM_STORES": "{hot: {}}"})


def test_a_refusal_that_is_not_about_a_variable_names_none() -> None:
    of_stores = {"RLM_LOG_LEVEL": "info", "RLM_PLUGIN": "s3"}
    said = "problem.log.level.ms, /etc/log.level and a plugin: see log.level.ms"
    assert naming_variables(said, of_stores) == said
    named = "RLM_LOG_LEVEL: must be info"
    assert naming_variables(named, of_stores) == named


@pytest.mark.parametrize(
    "key",
    [
        *("kafka.sasl.password.file", "api.token.file", "kafka.ssl.keystore.location"),
        *("proxy.tls.key.file", "api.principals.file", "rsm.config.hdfs.auth.kerberos.keytab"),
    ],
)
def test_what_is_given_for_a_file_with_a_secret_is_not_shown(key: str) -> None:
    """Who gives the secret itself instead of its file must not find it in a log."""
    name = environment_name(key)
    with pytest.raises(Invalid, match=f"^{name}: must be an absolute path of a file") as refused:
        overridden({}, {name: HIDDEN}, Refusals())
    shown = "".join(traceback.format_exception(refused.value))
    assert HIDDEN not in shown


def test_an_empty_variable_counts_as_none(given: dict[str, Any]) -> None:
    assert overridden(given, {"RLM_NODE_ID": "", "RLM_NODE_IT": ""}, Refusals()) == given
