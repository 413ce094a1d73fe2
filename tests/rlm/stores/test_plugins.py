"""The plugins behind stores for real: started, killed and back; dialled over mutual TLS."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from kip405.errors import RemoteStorageError
from rlm.clock import SystemClock
from rlm.config.stores import read_stores
from rlm.stores.opened import OpenPlugin, PluginTerms, open_plugins
from rsm_plugins.contract.client import Deadlines
from rsm_plugins.process.plugin import running_server
from tests.builders.certificates import Authority
from tests.rsm_plugins.harness import plugin_settings

TERMS = PluginTerms(principal="tests", deadlines=Deadlines(call_ms=20_000))


def opened(content: Mapping[str, Any]) -> OpenPlugin:
    [plugin] = open_plugins(read_stores(content), TERMS, SystemClock())
    return plugin


async def reached(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.05)


async def test_a_plugin_of_ours_is_started_watched_and_started_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    plugin = opened({"plugin": "local", "rsm.config.root": str(root)})
    process = plugin.process
    assert process is not None
    assert plugin.problem() == "plugin default is being started"
    life = asyncio.ensure_future(process.run())
    try:
        await process.ready()
        assert plugin.problem() is None
        assert (await plugin.manager.get_info()).store_uri == root.as_uri()
        killed = process.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await reached(lambda: plugin.problem() is not None)
        assert "SIGKILL" in str(plugin.problem())
        await reached(lambda: plugin.problem() is None)
        assert process.pid != killed
        assert (await plugin.manager.get_info()).name == "local"
    finally:
        life.cancel()
        await asyncio.wait([life])
        await plugin.manager.close()
    assert process.pid is None


async def test_a_command_that_is_no_plugin_is_named_with_its_words(tmp_path: Path) -> None:
    command = tmp_path / "mine"
    command.write_text("#!/bin/sh\necho 'no licence' >&2\nexit 2\n")
    command.chmod(0o755)
    plugin = opened({"stores": {"mine": {"plugin.command": [str(command)]}}})
    assert plugin.process is not None
    life = asyncio.ensure_future(plugin.process.run())
    try:
        with pytest.raises(RemoteStorageError, match="plugin mine: it ended with status 2"):
            await plugin.process.ready()
        assert "no licence" in str(plugin.problem())
    finally:
        life.cancel()
        await asyncio.wait([life])
        await plugin.manager.close()


async def test_a_plugin_gets_no_key_of_another_store_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is to know is in its own file; RLM_STORES has the keys of all stores."""
    keys = "rsm.config.aws.access.key.id: i, rsm.config.aws.secret.access.key: hidden-from-all"
    monkeypatch.setenv("RLM_STORES", f"{{other: {{plugin: s3, {keys}}}}}")
    monkeypatch.setenv("RLM_LOG_LEVEL", "info")
    monkeypatch.setenv("OF_THE_STORE", "for it")
    plugin = opened({"plugin": "local", "rsm.config.root": str(tmp_path)})
    assert plugin.process is not None
    life = asyncio.ensure_future(plugin.process.run())
    try:
        await plugin.process.ready()
        environment = psutil.Process(plugin.process.pid).environ()
    finally:
        life.cancel()
        await asyncio.wait([life])
        await plugin.manager.close()
    assert environment["OF_THE_STORE"] == "for it"
    assert not {"RLM_STORES", "RLM_LOG_LEVEL"} & environment.keys()
    assert "hidden-from-all" not in str(environment)


async def test_a_plugin_elsewhere_is_dialled_over_mutual_tls(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    server, ours = authority.issue("plugin", "127.0.0.1"), clients.issue("service")
    root = tmp_path / "store"
    root.mkdir()
    settings = plugin_settings(
        root,
        tls__cert__file=str(server.cert_file),
        tls__key__file=str(server.key_file),
        tls__client__ca__file=str(clients.ca_file),
    )
    async with running_server(settings) as (address, _):
        trusted = {
            "plugin.address": str(address),
            "plugin.tls.ca.file": str(authority.ca_file),
            "plugin.tls.cert.file": str(ours.cert_file),
            "plugin.tls.key.file": str(ours.key_file),
        }
        plugin = opened(trusted)
        nobody = opened({"plugin.address": str(address)})
        try:
            assert (await plugin.manager.get_info()).name == "local"
            assert plugin.problem() is None
            with pytest.raises(RemoteStorageError):
                await nobody.manager.get_info()
        finally:
            await plugin.manager.close()
            await nobody.manager.close()
