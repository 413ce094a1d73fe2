"""The kinds of store of a sandbox: stages, ports, secrets and the configuration of the plugin."""

import json
import stat
from pathlib import Path

import pytest
import yaml

from rlm_sandbox import state as states
from rlm_sandbox.document import sandbox_document
from rlm_sandbox.launcher import stages
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.services import plugin_config
from rlm_sandbox.spec import STORE_PROCESSES, Layout, Override, SandboxError, SandboxSpec
from rlm_sandbox.state import SandboxState, prepared, stopped_state
from rlm_sandbox.stores.choice import sandbox_store
from rlm_sandbox.stores.s3 import S3Store
from rsm_plugins.process.config import settings_of

KINDS = list(STORE_PROCESSES)


def planned(root: Path, spec: SandboxSpec) -> SandboxState:
    with PortReservation() as ports:
        return prepared(Layout(root=root), spec, None, ports)


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stores_servers_start_before_the_plugins_that_need_them(kind: str, brokers: int) -> None:
    in_order = stages(SandboxSpec(store=kind, brokers=brokers))
    assert set(STORE_PROCESSES[kind]) <= set(in_order[0])
    if STORE_PROCESSES[kind]:
        assert not any(name.startswith("plugin:") for name in in_order[0])
    names = [name for stage in in_order for name in stage]
    assert len(names) == len(set(names))
    assert names[-brokers:] == [f"rlm:{node}" for node in range(1, brokers + 1)]


def test_brokers_only_have_no_store() -> None:
    in_order = stages(SandboxSpec(store="s3", services=False))
    assert in_order == (("broker:1",),)


@pytest.mark.parametrize("kind", KINDS)
def test_state_and_ports_of_a_store_survive_their_text_form(kind: str, tmp_path: Path) -> None:
    state = planned(tmp_path, SandboxSpec(store=kind))
    assert SandboxState.from_json(json.loads(json.dumps(state.to_json()))) == state
    store = sandbox_store(Layout(root=tmp_path), state)
    used = [port for name in STORE_PROCESSES[kind] for port in store.ports_of(name)]
    assert sorted(used) == sorted(state.store_ports.values())


@pytest.mark.parametrize("kind", KINDS)
def test_plugins_accept_their_configuration(kind: str, tmp_path: Path) -> None:
    override = Override.parse("store.sweep.grace.ms=7")
    spec = SandboxSpec(store=kind, overrides=(override,))
    state = planned(tmp_path, spec)
    store = sandbox_store(Layout(root=tmp_path), state).plugin_settings()
    settings = settings_of(plugin_config(spec, state.ports[1], store))
    assert settings.kind == kind
    assert settings.sweep_grace_ms == 7


def test_a_proxy_can_be_between_plugin_and_store(tmp_path: Path) -> None:
    override = Override.parse("store.rsm.config.s3.endpoint.url=http://127.0.0.1:9")
    spec = SandboxSpec(store="s3", overrides=(override,))
    state = planned(tmp_path, spec)
    layout = Layout(root=tmp_path)
    rows = plugin_config(spec, state.ports[1], sandbox_store(layout, state).plugin_settings())
    assert rows["rsm.config.s3.endpoint.url"] == "http://127.0.0.1:9"
    real = sandbox_document(layout, state)["store"]["endpoint"]
    assert real == f"http://127.0.0.1:{state.store_ports['s3']}"


@pytest.mark.parametrize(
    ("kind", "uri"),
    [
        ("local", "file://{root}/store"),
        ("s3", "s3://rlm-sandbox"),
        ("hdfs", "hdfs://127.0.0.1:{namenode}/rlm-sandbox"),
    ],
)
def test_the_document_names_the_store(kind: str, uri: str, tmp_path: Path) -> None:
    state = planned(tmp_path, SandboxSpec(store=kind))
    store = sandbox_document(Layout(root=tmp_path), state)["store"]
    assert store["kind"] == kind
    assert store["uri"] == uri.format(root=tmp_path, **state.store_ports)
    assert store["pids"] == [None] * len(STORE_PROCESSES[kind])


def test_the_secret_lies_in_one_file_of_its_own_and_stays(tmp_path: Path) -> None:
    state = planned(tmp_path, SandboxSpec(store="s3"))
    layout = Layout(root=tmp_path)
    store = S3Store(layout=layout, ports=state.store_ports)
    store.prepare()
    written = layout.store_credentials.read_text()
    secret = store.environ("store:s3")["ROOT_SECRET_ACCESS_KEY"]
    assert len(secret) == 32
    assert secret in written
    assert stat.S_IMODE(layout.store_credentials.stat().st_mode) == 0o600
    shown = yaml.safe_dump(plugin_config(state.spec, state.ports[1], store.plugin_settings()))
    assert secret not in shown + json.dumps(sandbox_document(layout, state))
    store.prepare()
    assert layout.store_credentials.read_text() == written


def test_hdfs_says_where_it_cannot_be(tmp_path: Path) -> None:
    root = tmp_path / "with space"
    state = planned(root, SandboxSpec(store="hdfs"))
    with pytest.raises(SandboxError, match=r"--dir .*with space: HDFS cannot keep its files"):
        sandbox_store(Layout(root=root), state).resolve(print)


def test_a_directory_stays_with_its_kind_of_store(tmp_path: Path) -> None:
    layout = Layout(root=tmp_path)
    states.save(layout, planned(tmp_path, SandboxSpec(store="s3")))
    with pytest.raises(SandboxError, match="was made with store=s3, not hdfs"):
        stopped_state(layout, SandboxSpec(store="hdfs"))
