"""Services as their composition roots build them; nothing is contacted, and nothing runs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from kip405.addresses import Address
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.config.loader import from_mapping
from rlm.service.broker_service import BrokerService
from rlm.tasks.assignment import Assignment
from rlm.workers.inherited import CoreSettings
from tests.builders.threads import all_of, some_threads

NOBODY = Address(host="127.0.0.1", port=1)
NODE_ID = 3


def common_settings(path: Path, address: Address) -> dict[str, object]:
    """Settings of a service in every role, whose broker and plugin are at the address."""
    return {
        "cluster.id": "ours",
        "state.dir": str(path),
        "kafka.bootstrap.servers": str(address),
        "grpc.listen": "127.0.0.1:1",
        "http.listen": "127.0.0.1:1",
        "plugin.address": str(address),
    }


def broker_config(
    path: Path, settings: Mapping[str, object], address: Address = NOBODY
) -> ServiceConfig:
    """Of a service beside a broker at the address; `path` is its state directory and log.dir."""
    return from_mapping(
        {
            **common_settings(path, address),
            "node.id": NODE_ID,
            "log.dirs": [str(path)],
            "broker.direct.address": str(address),
            "broker.tiered.address": str(address),
            "proxy.listen": "127.0.0.1:1",
            "proxy.advertised": "broker-3:9092",
            **settings,
        }
    )


@asynccontextmanager
async def built_service(
    path: Path,
    clock: Clock,
    settings: Mapping[str, object] | None = None,
    address: Address = NOBODY,
    core: CoreSettings | None = None,
    reread: Callable[[], ServiceConfig] | None = None,
    assignment: Assignment | None = None,
) -> AsyncIterator[BrokerService]:
    """A broker's service, closed afterwards. `path` is its state directory and its log.dir.
    `core`: it has proxy workers. `reread`: what a reload finds; without it, the same again.
    """
    config = broker_config(path, settings or {}, address)
    with some_threads(1) as threads:
        async with asyncio.TaskGroup() as tasks:
            service = BrokerService(
                *(config, clock, tasks, all_of(threads), reread or (lambda: config), core),
                assignment=assignment,
            )
            try:
                yield service
            finally:
                await service.close()
