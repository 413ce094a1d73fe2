"""What a client learns about a plugin and its store: health, findings, version, capabilities; and
what it does without a capability.
"""

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import structlog

from kip405.contracts import FindingKind
from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.settings import masked
from kip405.v1 import errors_pb2
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.client import GrpcRemoteStorageManager
from rsm_plugins.contract.messages import expected_message
from rsm_plugins.contract.probe import Capability, ProbeState, probe_value
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.process import main
from rsm_plugins.process.config import settings_of
from rsm_plugins.process.logs import configure_logs
from rsm_plugins.process.plugin import running_server, sweep_leftovers
from rsm_plugins.store_kinds import OpenStore, secrets_of
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import identity_pb2_grpc
from rsm_plugins.v1 import storage_pb2 as pb
from tests.rsm_plugins.harness import DEADLINES, PREFIX, local_subject, new_uuid, plugin_settings


def client_of(
    address: str, needed: Collection[Capability] = (Capability.BYTES,)
) -> GrpcRemoteStorageManager:
    return GrpcRemoteStorageManager.connect(
        address, principal="t", deadlines=DEADLINES, needed=needed
    )


async def test_healthy_and_unhealthy(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    async with running_server(plugin_settings(root)) as (address, _):
        client = client_of(str(address))
        answer = await client.probe()
        assert (answer.state, answer.detail) == (ProbeState.READY, "store without identity object")
        assert answer.findings == ()
        subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
        identity = await subject.ensure_identity()
        answer = await client.probe(inspect=True)
        assert (answer.state, answer.detail) == (ProbeState.READY, f"store {identity.store_id}")
        assert answer.problem is None
        [free] = answer.findings
        assert free.kind is FindingKind.FREE_SPACE
        assert free.value is not None and free.value > 0
        assert free.state.startswith(f"{free.value} of ")
        (root / PREFIX / "rlm-store.json").write_text("{")
        answer = await client.probe()
        assert answer.state is ProbeState.UNHEALTHY
        assert isinstance(answer.problem, Corrupt)
        assert str(answer.problem) == answer.detail
        root.rename(tmp_path / "away")
        answer = await client.probe(inspect=True)
        assert answer.state is ProbeState.UNHEALTHY
        assert isinstance(answer.problem, Unavailable)
        assert answer.findings[0].state.startswith("unknown: ")
        assert (await client.inspect())[0].value is None
        await client.close()
    client = client_of(str(address))
    with pytest.raises(Unavailable):
        await client.probe()
    await client.close()


def test_answers_of_other_plugins() -> None:
    """A state or a kind that this side does not know is never taken for good news."""
    starting = probe_value(idpb.ProbeResponse(state=idpb.ProbeResponse.STATE_STARTING, detail="x"))
    assert (starting.state, starting.detail) == (ProbeState.STARTING, "x")
    assert probe_value(idpb.ProbeResponse()).state is ProbeState.UNHEALTHY
    odd = idpb.ProbeResponse(problem=errors_pb2.ErrorDetail(what="y"))
    odd.findings.add(state="from the future")
    odd.findings.add(kind=idpb.FINDING_KIND_LIFECYCLE_EXPIRY, state="Enabled", days=0)
    answer = probe_value(odd)
    assert str(answer.problem) == "y"
    [finding] = answer.findings
    assert (finding.days, finding.value, finding.applies_to) == (0, None, "")


async def test_a_plugin_without_what_is_needed_is_refused_by_name(tmp_path: Path) -> None:
    settings = plugin_settings(tmp_path, shared__volume=False)
    async with running_server(settings) as (address, _):
        needed = (Capability.SHARED_VOLUME, Capability.BYTES, Capability.SCRATCH)
        client = client_of(str(address), needed)
        with pytest.raises(Invalid, match=r"local .* needed here: SCRATCH, SHARED_VOLUME$"):
            await client.get_info()
        await client.close()
        client = client_of(str(address), (Capability.INSPECT, Capability.BYTES))
        await client.get_info()
        await client.close()


class Old(identity_pb2_grpc.IdentityServicer):
    """A plugin that can do the least."""

    def __init__(self, contract_version: int) -> None:
        self._version = contract_version

    async def GetInfo(self, request: idpb.GetInfoRequest, context: Context) -> idpb.GetInfoResponse:
        return idpb.GetInfoResponse(
            name="old",
            version="0.9",
            contract_version=self._version,
            capabilities=[idpb.CAPABILITY_BYTES],
        )

    async def Probe(self, request: idpb.ProbeRequest, context: Context) -> idpb.ProbeResponse:
        return idpb.ProbeResponse(state=idpb.ProbeResponse.STATE_READY)


@asynccontextmanager
async def old_plugin(contract_version: int = 1) -> AsyncIterator[str]:
    server = grpc.aio.server()
    identity_pb2_grpc.add_IdentityServicer_to_server(Old(contract_version), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_another_version_of_the_contract_is_refused() -> None:
    async with old_plugin(2) as address:
        client = client_of(address)
        with pytest.raises(Invalid, match=r"old 0\.9.* version 2 of the contract.* version 1"):
            await client.get_info()
        await client.close()


async def test_a_plugin_that_cannot_inspect_has_no_findings() -> None:
    async with old_plugin() as address:
        client = client_of(address)
        assert await client.inspect() == ()
        await client.close()


async def test_a_call_for_too_many_is_refused(tmp_path: Path) -> None:
    async with running_server(plugin_settings(tmp_path)) as (address, _):
        client = client_of(str(address))
        subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
        request = pb.StatRequest(
            segments=[expected_message(subject.expected(subject.segment()))] * 1001
        )
        with pytest.raises(grpc.aio.AioRpcError, match="1001 segments in one call") as caught:
            await client._stubs.storage.Stat(request, metadata=client._metadata)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await client.close()


async def test_a_manifest_that_cannot_go_keeps_its_log(tmp_path: Path) -> None:
    """A folder under the manifest's name represents whatever keeps it from being removed."""
    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        stuck = subject.segment()
        await subject.complete(stuck)
        store = tmp_path / "store" / PREFIX
        [manifest] = [
            store / name
            for name in await subject.names(stuck.locator.segment_id.topic_id_partition)
            if name.endswith("manifest")
        ]
        manifest.unlink()
        manifest.mkdir()
        with pytest.raises(Exception, match="cannot delete from"):
            await subject.manager.delete_log_segment_data(stuck.locator)
        assert await subject.fetch(stuck.locator, 0, 1 << 30) == stuck.log
        assert isinstance(subject.manager, LocalRemoteStorageManager)


def test_secrets_are_masked_wherever_they_turn_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert masked("ab abc", ("ab", "abc")) == "*** ***"
    odd = 'sw"ord\\f\u00efsh'
    for text in (odd, json.dumps({"a": odd}), json.dumps(odd, ensure_ascii=False), repr([odd])):
        assert "ord" not in masked(text, (odd,))
    assert secrets_of({"plugin": "mine", "my.secret": "x", "my.key": "y", "token": 7}) == ("x", "7")
    assert secrets_of({"plugin": "local", "rsm.config.root": "/token"}) == ()
    configure_logs(level="info", secrets=("swordfish",))
    structlog.get_logger("test").warning("odd", what="the key swordfish is not known")
    shown = capsys.readouterr().err
    assert "the key *** is not known" in shown
    assert "swordfish" not in shown


async def test_secrets_are_masked_in_answers_to_callers(tmp_path: Path) -> None:
    """The prefix stands for a secret that a store's library puts into its errors."""
    settings = replace(plugin_settings(tmp_path), secrets=("some/prefix",))
    async with running_server(settings) as (address, _):
        client = client_of(str(address))
        subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
        with pytest.raises(Unavailable, match=r"cannot read a manifest of .*/\*\*\*") as caught:
            await client.read_manifest(subject.locator(subject.partition()))
        assert "some/prefix" not in str(caught.value)
        (tmp_path / PREFIX).mkdir(parents=True)
        (tmp_path / PREFIX / "rlm-store.json").write_text("{")
        answer = await client.probe()
        assert isinstance(answer.problem, Corrupt)
        assert "***" in answer.detail and "some/prefix" not in answer.detail
        await client.close()


@pytest.mark.parametrize("error", [Unavailable("away"), KeyError("NextKeyMarker")])
async def test_a_sweep_that_fails_does_not_end_the_plugin(
    tmp_path: Path, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(grace_ms: int) -> int:
        raise error

    manager = LocalRemoteStorageManager(tmp_path)
    await sweep_leftovers(OpenStore(manager=manager, uri="x", sweep=fail), 0)
    await manager.close()
    assert "sweep_" in capsys.readouterr().out


def test_the_help_shows_the_settings_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["serve", "--help"], prog_name="rsm-plugin")
    shown = capsys.readouterr().out
    for words in ("listen: 127.0.0.1:PORT", "With plugin: local", "rsm.config.root: an absolute"):
        assert words in shown


def test_settings_of_other_kinds_are_not_taken() -> None:
    with pytest.raises(Invalid, match=r"rsm\.config\.s3\.bucket\.name: unknown setting"):
        settings_of(
            {
                "listen": "127.0.0.1:0",
                "rsm.config.root": "/r",
                "rsm.config.s3.bucket.name": "b",
            }
        )
