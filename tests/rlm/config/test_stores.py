"""Stores and rules in the settings: short form, several, and refusals in one line."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kip405.errors import Invalid
from kip405.segments import Layout
from rlm.config import ServiceConfig, load
from rsm_plugins.endpoints import EndpointStore, StorageEndpoint, endpoint_in
from rsm_plugins.store_kinds import KIND_NAMES, kind_settings, store_kind

SECRET = "s3cr3t-hidden"
LOCAL = {"plugin": "local", "rsm.config.root": "/srv/store"}
OTHER = {"plugin": "local", "rsm.config.root": "/srv/other"}
DIALLED = {"plugin.address": "unix:/run/rsm.sock"}


class Upper:
    """A provider: everything to the store HOT."""

    def __init__(self, *, stores: Mapping[str, EndpointStore]) -> None:
        self._hot = stores["HOT"]

    def endpoint(self, cluster_id: str, topic: str, partition: int) -> StorageEndpoint:
        return endpoint_in(self._hot, 7)


def read(tmp_path: Path, content: dict[str, Any]) -> ServiceConfig:
    path = tmp_path / "rlm.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load(path)


def refusal(tmp_path: Path, content: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    return message


def test_no_store_is_allowed(tmp_path: Path, given: dict[str, Any]) -> None:
    assert read(tmp_path, given).stores == ()


def test_the_short_form_is_the_store_called_default(tmp_path: Path, given: dict[str, Any]) -> None:
    [dialled] = read(tmp_path, given | DIALLED | {"rsm.config.root": "/srv"}).stores
    assert (dialled.name, dialled.kind, str(dialled.address)) == (
        *("default", ""),
        "unix:/run/rsm.sock",
    )
    [spawned] = read(tmp_path, given | LOCAL | {"rsm.config.prefix": "kafka"}).stores
    assert (spawned.name, spawned.kind, spawned.address) == ("default", "local", None)
    assert spawned.config == {"rsm.config.root": "/srv/store", "rsm.config.prefix": "kafka"}
    assert spawned.endpoint_store == EndpointStore(
        name="default", plugin="local", location="file:///srv/store", prefix="kafka"
    )
    [own] = read(tmp_path, given | {"plugin.command": ["/opt/p", "serve"]}).stores
    assert own.command == ("/opt/p", "serve")


def test_several_stores_keep_their_order_and_the_rules_choose(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    config = read(
        tmp_path,
        given
        | {
            "stores": {"hot": LOCAL, "cold": {**OTHER, "rsm.config.prefix.entropy.bits": 2}},
            "rsm.config.prefix.entropy.bits": 4,
            "storage.endpoint.rules": [
                {"topics": r"audit\..*", "store": "cold"},
                {"topics": "audit.*", "store": "cold", "prefix.entropy.bits": 0},
            ],
        },
    )
    assert [store.name for store in config.stores] == ["hot", "cold"]
    provider = config.provider()
    found = [provider.endpoint("c1", topic, 0) for topic in ("x", "audit.a", "audits")]
    assert [(one.store, one.entropy_bits) for one in found] == [
        *[("hot", 4), ("cold", 2)],
        ("cold", 0),
    ]


def test_the_layout_is_that_of_the_rule_then_of_the_store(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    rules = [
        {"topics": "a.*", "store": "hot"},
        {"topics": "b.*", "store": "cold"},
        {"topics": "c.*", "store": "cold", "storage.layout": "blocks"},
    ]
    stores = {"hot": LOCAL, "cold": {**OTHER, "storage.layout": "kafka"}}
    shared = {"stores": stores, "storage.layout": "blocks", "storage.endpoint.rules": rules}
    config = read(tmp_path, given | shared)
    found = [config.provider().endpoint("c1", topic, 0).layout for topic in "abcd"]
    assert found == [Layout.BLOCKS, Layout.KAFKA, Layout.BLOCKS, Layout.BLOCKS]
    assert config.stores[0].shown()["stores.hot.storage.layout"] == "blocks"
    one = read(tmp_path, given | LOCAL).provider().endpoint("c1", "t", 0)
    assert one.layout is Layout.KAFKA
    for beside in (LOCAL, {"stores": stores}):
        message = refusal(tmp_path, given | beside | {"storage.layout": "pulsar"})
        assert message.startswith("storage.layout: must be")
    message = refusal(tmp_path, given | {"storage.layout": "blocks"})
    assert message == "storage.layout: there is no store: give `plugin` or `stores`"


def test_a_root_in_the_home_directory_is_the_same_as_its_absolute_path(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    root = str(Path("~/store").expanduser())
    own = {"plugin": "local", "rsm.config.root": "~/store"}
    [store] = read(tmp_path, given | own).stores
    assert (store.config, store.endpoint_store.location) == (
        {"rsm.config.root": root},
        f"file://{root}",
    )
    two = {"hot": own, "cold": {**own, "rsm.config.root": f"{root} "}}
    message = refusal(tmp_path, given | {"stores": two})
    assert message.startswith("stores.cold: it is where store hot is")


@pytest.mark.parametrize("key", ["state.dir", "rsm.config.root"])
def test_a_home_directory_that_does_not_exist_is_refused(
    tmp_path: Path, given: dict[str, Any], key: str
) -> None:
    message = refusal(tmp_path, given | LOCAL | {key: "~no-such-user/x"})
    assert message.startswith(f"{key}: must be an absolute path, got '~no-such-user/x'")


def test_a_class_may_choose_the_store(tmp_path: Path, given: dict[str, Any]) -> None:
    key = "storage.endpoint.provider.class"
    config = read(tmp_path, given | {"stores": {"HOT": LOCAL}, key: f"{__name__}:Upper"})
    assert config.provider().endpoint("c1", "t", 0).entropy_bits == 7


def test_secrets_are_neither_shown_nor_part_of_a_repr(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    row = {"rsm.config.my.password": SECRET, "rsm.config.root": "/srv"}
    config = read(tmp_path, given | {"stores": {"hot": DIALLED | row}})
    shown = config.shown()
    assert shown["stores.hot.rsm.config.root"] == "/srv"
    assert shown["stores.hot.rsm.config.my.password"] == "***"
    assert shown["stores"] == "hot"
    assert SECRET not in f"{config!r}{shown}"


@pytest.mark.parametrize("value", [{"hunter2": None}, {"a": "hunter2"}, ["hunter2"]])
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (DIALLED, "rsm.config.my.password"),
        (
            {"plugin": "s3", "rsm.config.s3.bucket.name": "bucket"},
            "rsm.config.aws.secret.access.key",
        ),
    ],
)
def test_a_secret_of_a_wrong_shape_is_not_in_the_refusal(
    tmp_path: Path, given: dict[str, Any], kind: dict[str, Any], key: str, value: object
) -> None:
    """`{hunter2}` is a mapping in YAML."""
    message = refusal(tmp_path, given | {"stores": {"hot": kind | {key: value}}})
    assert message.startswith(f"stores.hot.{key}: must be ")
    assert "hunter2" not in message


def test_secrets_of_a_kind_are_named_by_its_table(tmp_path: Path, given: dict[str, Any]) -> None:
    s3 = {
        "plugin": "s3",
        "rsm.config.s3.bucket.name": "bucket",
        "rsm.config.s3.region": "eu-central-1",
        "rsm.config.aws.role.arn": "arn:aws:iam::123456789012:role/x",
        "rsm.config.aws.role.external.id": SECRET,
    }
    config = read(tmp_path, given | s3)
    assert config.shown()["rsm.config.aws.role.external.id"] == "***"
    assert SECRET not in f"{config!r}{config.shown()}"
    wrong = s3 | {"rsm.config.aws.role.external.id": [SECRET]}
    assert refusal(tmp_path, given | wrong).startswith("rsm.config.aws.role.external.id: ")


@pytest.mark.parametrize(
    ("stores", "begins"),
    [
        ({"hot": {"plugin": "tape"}}, "stores.hot.plugin: must be local or s3 or hdfs, got 'tape'"),
        ({"hot": {}}, "stores.hot.plugin: a store has exactly one of plugin, plugin.command"),
        ({"hot": LOCAL | DIALLED}, "stores.hot.plugin: a store has exactly one of plugin"),
        ({"hot": {"plugin": "local"}}, "stores.hot.rsm.config.root: missing; must be an absolute"),
        (
            {"hot": LOCAL | {"rsm.config.rot": SECRET}},
            "stores.hot.rsm.config.rot: unknown setting; did you mean rsm.config.root?",
        ),
        (
            {"hot": LOCAL | {"plugin.adress": "x"}},
            "stores.hot.plugin.adress: unknown setting; did you mean plugin.address?",
        ),
        (
            {"hot": LOCAL, "cold": LOCAL},
            "stores.cold: it is where store hot is (file:///srv/store with prefix ''); give each",
        ),
        (
            {"hot": DIALLED, "cold": DIALLED},
            "stores.cold: it is where store hot is (unix:/run/rsm.sock); give each",
        ),
        ({"a/b": LOCAL}, "stores: a name must be 1 to 60 characters"),
        ({"hot": SECRET}, "stores: must be a mapping of names to settings of a store, got a name"),
        ([LOCAL], "stores: must be a mapping of names to settings of a store, got a list of 1"),
        (
            {"hot": DIALLED | {"rsm.config.prefix": "/x"}},
            "stores.hot.rsm.config.prefix: must be path components joined by single slashes",
        ),
        (
            {"hot": LOCAL | {"rsm.config.prefix.entropy.bits": 33}},
            "stores.hot.rsm.config.prefix.entropy.bits: must be a whole number from 0 to 32",
        ),
        (
            {"hot": LOCAL | {"plugin.tls.ca.file": "/ca.pem"}},
            "stores.hot.plugin.tls.ca.file: TLS goes with a plugin.address",
        ),
        (
            {"hot": {"plugin.address": "far:1", "plugin.tls.cert.file": "/c.pem"}},
            "stores.hot.plugin.tls.key.file: missing; a certificate and its key go together",
        ),
        (
            {"hot": {"plugin.address": "10.1.1.1:7000"}},
            "stores.hot.plugin.address: 10.1.1.1:7000 is not loopback; give plugin.tls.ca.file",
        ),
    ],
)
def test_a_store_that_cannot_be_is_named(
    tmp_path: Path, given: dict[str, Any], stores: Any, begins: str
) -> None:
    assert refusal(tmp_path, given | {"stores": stores}).startswith(begins)


@pytest.mark.parametrize(
    ("rules", "begins"),
    [
        ([{"topics": "a", "store": "cold"}], "[0].store: there is no store 'cold', but hot"),
        ([{"topics": "a(", "store": "hot"}], "[0].topics: 'a(' is no regular expression"),
        ([{"topics": "a", "store": "hot"}, {"store": "hot"}], "[1].topics: missing"),
        ([{"topics": "a"}], "[0].store: missing"),
        ([{"topic": "a", "store": "hot"}], "[0].topic: unknown setting; did you mean topics?"),
        (
            [{"topics": "a", "store": "hot", "prefix.entropy.bits": -1}],
            "[0].prefix.entropy.bits: must be a whole number from 0 to 32, got -1",
        ),
        ({"topics": "a"}, ": must be a list of rules"),
        ("a", ": must be a list of rules"),
    ],
)
def test_a_rule_that_cannot_be_is_named(
    tmp_path: Path, given: dict[str, Any], rules: Any, begins: str
) -> None:
    content = given | {"stores": {"hot": LOCAL}, "storage.endpoint.rules": rules}
    assert refusal(tmp_path, content).startswith(f"storage.endpoint.rules{begins}")


def test_one_command_may_serve_several_stores(tmp_path: Path, given: dict[str, Any]) -> None:
    own = {"plugin.command": ["/opt/tape"], "rsm.config.pool": "a"}
    stores = {"hot": own, "cold": own | {"rsm.config.pool": "b"}}
    assert len(read(tmp_path, given | {"stores": stores}).stores) == 2
    twice = {"hot": own, "cold": own}
    assert refusal(tmp_path, given | {"stores": twice}).startswith("stores.cold: it is where store")


def test_rules_and_a_class_exclude_each_other(tmp_path: Path, given: dict[str, Any]) -> None:
    key = "storage.endpoint.provider.class"
    both = given | LOCAL | {key: "a:B", "storage.endpoint.rules": []}
    assert refusal(tmp_path, both).startswith(f"{key}: it replaces storage.endpoint.rules")
    assert refusal(tmp_path, given | LOCAL | {key: "no.such:B"}).startswith(f"{key}: no.such:B can")


def test_a_setting_of_a_store_is_refused_beside_stores(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    both = given | {"stores": {"hot": LOCAL}, "rsm.config.root": "/x"}
    assert refusal(tmp_path, both).startswith("rsm.config.root: with `stores` it belongs to one of")


def test_tls_lets_a_plugin_be_far_away(tmp_path: Path, given: dict[str, Any]) -> None:
    far = {"plugin.address": "10.1.1.1:7000", "plugin.tls.ca.file": "/ca.pem"}
    pair = {"plugin.tls.cert.file": "/c.pem", "plugin.tls.key.file": "/k.pem"}
    [store] = read(tmp_path, given | far | pair).stores
    assert store.tls is not None
    assert (store.tls.ca_file, store.tls.key_file) == (Path("/ca.pem"), Path("/k.pem"))
    read(tmp_path, given | {"plugin.address": "10.1.1.1:7000", "allow_insecure": True})


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_the_rows_of_a_kind_are_the_plugins_own(kind: str) -> None:
    assert kind_settings(kind) == store_kind(kind).settings


def test_checking_the_settings_of_a_store_does_not_load_its_library() -> None:
    code = (
        "import sys; from rlm.config.stores import read_stores; "
        "read_stores({'plugin': 's3', 'rsm.config.s3.bucket.name': 'bucket'}); "
        "sys.exit('botocore' in sys.modules or 'aiobotocore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "value",
    [f"@{SECRET}", f"{SECRET}: x", f"*{SECRET}", f"!{SECRET} x", f'"{SECRET}', f"%{SECRET}"],
)
def test_a_file_that_is_no_yaml_is_refused_without_its_secrets(tmp_path: Path, value: str) -> None:
    path = tmp_path / "rlm.yaml"
    path.write_text(f"plugin: s3\nrsm.config.aws.secret.access.key: {value}\n", encoding="utf-8")
    with pytest.raises(Invalid, match=r"rlm\.yaml is not YAML: line \d+, column \d+") as refused:
        load(path)
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)
