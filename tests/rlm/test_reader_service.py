"""A reader as a whole, before there is a Kafka for it: it listens, waits, refuses what is wrong."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from grpc import aio

from kafka_protocol.apis import DESCRIBE_CLUSTER, METADATA
from kip405.acls import OUR_PRINCIPAL, Acl
from kip405.addresses import Address
from kip405.errors import Invalid, NotFound
from rlm.api.call_metadata import call_metadata
from rlm.clock import SystemClock
from rlm.config.loader import reader_from_mapping
from rlm.log_dir.identity import ReaderLock
from rlm.plans.problems import ProblemKind
from rlm.plans.rights import Role, Topics, When, least_acls
from rlm.service.reader_service import ReaderService
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rlm.workers.ending import Ending
from rlm_sandbox.ports import PortReservation
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.fake_broker import FakeBroker
from tests.builders.ledger import PARTITION, MemoryLedger, metadata
from tests.builders.rights import CLUSTER, topics_with_rights
from tests.builders.threads import all_of, some_threads

ACL_MISSING = ProblemKind.ACL_MISSING.value
OF_READER = least_acls(Role.READER, OUR_PRINCIPAL, Topics(), {When.ALWAYS})


@asynccontextmanager
async def reader(path: Path, broker: Address) -> AsyncIterator[tuple[ReaderService, Any]]:
    ports = PortReservation()
    grpc, http = ports.take(), ports.take()
    ports.lend(grpc, http)
    config = reader_from_mapping(
        {
            "cluster.id": "ours",
            "state.dir": str(path),
            "kafka.bootstrap.servers": str(broker),
            "grpc.listen": f"127.0.0.1:{grpc}",
            "http.listen": f"127.0.0.1:{http}",
            "plugin.address": "127.0.0.1:1",
        }
    )
    with some_threads(1) as threads, structlog.testing.capture_logs():
        async with asyncio.TaskGroup() as tasks:
            service = ReaderService(config, SystemClock(), tasks, all_of(threads), lambda: config)
            try:
                yield service, config
            finally:
                await service.drain()
                await service.close()
    ports.release_all()


async def test_another_cluster_is_refused(tmp_path: Path) -> None:
    async with FakeBroker().running() as broker:
        broker.on(DESCRIBE_CLUSTER, CLUSTER)
        async with reader(tmp_path, broker.address) as (service, _):
            with pytest.raises(Invalid, match=r"belong to cluster another, cluster\.id is ours"):
                await service.run(Ending(SystemClock()))


async def test_without_kafka_it_listens_and_is_not_ready(tmp_path: Path) -> None:
    async with reader(tmp_path, Address(host="127.0.0.1", port=1)) as (service, config):
        running = asyncio.ensure_future(service.run(Ending(SystemClock())))
        try:
            async with (
                asyncio.timeout(60),
                aio.insecure_channel(str(config.grpc_listen)) as channel,
            ):
                answer = await FetchServiceStub(channel).DescribeEndpoints(
                    pb.DescribeEndpointsRequest(),
                    metadata=call_metadata("tests", None),
                    wait_for_ready=True,
                )
            assert [(row.role, row.grpc_address) for row in answer.endpoints] == [
                ("reader", str(config.grpc_listen))
            ]
            health = json.loads(await _get(config.http_listen, "/healthz"))
            assert (health["status"], health["ready"]) == ("ok", False)
            assert {
                (row["kind"], row["text"])
                for row in health["problems"]
                if row["kind"] == "starting"
            } >= {("starting", "the ledger was not read to its end yet")}
            assert "rlm_stores_configured 1.0" in await _get(config.http_listen, "/metrics")
        finally:
            running.cancel()


async def test_h11_a_lost_segment_is_a_problem_of_the_reader_that_found_it(tmp_path: Path) -> None:
    async with reader(tmp_path, Address(host="127.0.0.1", port=1)) as (service, config):
        ledger, lost = MemoryLedger(), metadata(7, 0, 100, {0: 0})
        ledger.copied(lost)
        service.metadata.manager.ledger = ledger.ledger  # type: ignore[method-assign]
        error = NotFound("object x is gone")
        known = ledger.view.entries.keys()
        service.segments.losses.note(PARTITION.key, lost.segment_id.id, error, known)
        running = asyncio.ensure_future(service.run(Ending(SystemClock())))
        try:
            async with asyncio.timeout(60), aio.insecure_channel(str(config.grpc_listen)) as api:
                await api.channel_ready()
            health = json.loads(await _get(config.http_listen, "/healthz"))
            [alarm] = [row for row in health["problems"] if row["kind"] == "segment-lost"]
            assert "object x is gone" in alarm["text"]
            assert health["health"] == "alarm"
        finally:
            running.cancel()


@pytest.mark.parametrize("acl", OF_READER, ids=str)
async def test_h40_a_right_that_a_reader_lacks_is_its_problem(acl: Acl, tmp_path: Path) -> None:
    async with FakeBroker().running() as broker:
        broker.on(DESCRIBE_CLUSTER, CLUSTER | {"cluster_id": "ours"})
        broker.on(METADATA, topics_with_rights((LEDGER_TOPIC, SETTINGS_TOPIC), [acl]))
        async with reader(tmp_path, broker.address) as (service, config):
            running = asyncio.ensure_future(service.run(Ending(SystemClock())))
            try:
                async with (
                    asyncio.timeout(60),
                    aio.insecure_channel(str(config.grpc_listen)) as api,
                ):
                    await api.channel_ready()
                    missing: list[Any] = []
                    while not missing:
                        health = json.loads(await _get(config.http_listen, "/healthz"))
                        missing = [row for row in health["problems"] if row["kind"] == ACL_MISSING]
                [row] = missing
                assert row["text"].startswith(
                    f"missing ACL: principal User:ANONYMOUS, operation {acl.operation}, "
                    f"resource Topic:{acl.resource_name}; kafka-acls.sh --add "
                )
            finally:
                running.cancel()


async def _get(address: object, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as found:
        assert found.status == 200
        return await found.text()


def test_one_reader_has_a_state_dir(tmp_path: Path) -> None:
    with ReaderLock(str(tmp_path), "ours"):
        with pytest.raises(Invalid, match="readers of cluster ours in this state"):
            ReaderLock(str(tmp_path), "ours").__enter__()
        with ReaderLock(str(tmp_path), "another"):
            pass
    with ReaderLock(str(tmp_path), "ours"):
        pass
