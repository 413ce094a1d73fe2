"""An attached reader with a listener for Kafka clients, and such a client, for tests."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kafka_protocol.apis import FETCH, LIST_OFFSETS
from kafka_protocol.frames import decode_response, encode_request
from kafka_protocol.schema import Api, Value
from kip405.addresses import Address
from kip405.batches import batch_headers
from rlm.history_proxy.answers import NODE_ID, HistoryAnswers
from rlm.history_proxy.committed import CommittedOffsets
from rlm.history_proxy.coordinator import GroupCoordinator
from rlm.history_proxy.listener import HistoryListener
from rlm.proxy.tls_files import Contexts
from rsm_plugins.threads import Threads
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.rlm.api.attached_site import AttachedSite
from tests.rlm.api.remote_site import Site
from tests.rlm.api.test_h04_attached import attached
from tests.rlm.proxy.uncounted import Counting

TOPIC, NUMBER = PARTITION.topic, PARTITION.partition
END = 400
NAME = "history.test"
_LENGTH_BYTES = 4


class _Quota:
    """`is_used_up`: nobody may read for longer than a client waits."""

    def __init__(self) -> None:
        self.taken_bytes = 0
        self.is_used_up = False

    async def wait(self) -> None:
        if self.is_used_up:
            raise TimeoutError

    def took(self, size_bytes: int) -> None:
        self.taken_bytes += size_bytes


class Client:
    """One connection; each request waits for its answer."""

    def __init__(
        self, port: int, made: AttachedSite, metrics: Counting, tls: ssl.SSLContext | None = None
    ) -> None:
        self.made = made
        self.port = port
        self.metrics = metrics
        self.quota = _Quota()
        self.groups: GroupCoordinator
        self._tls: dict[str, Any] = {} if tls is None else {"ssl": tls, "server_hostname": NAME}

    async def ask(self, api: Api, version: int, body: Mapping[str, Any]) -> Value:
        frame = await self.raw(encode_request(api, version, 7, "tests", body))
        correlation_id, value = decode_response(api, version, frame)
        assert correlation_id == 7
        return value

    async def raw(self, request: bytes) -> bytes:
        """IncompleteReadError: the connection was ended."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **self._tls)
        try:
            writer.write(request)
            size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
            return await reader.readexactly(size)
        finally:
            writer.transport.abort()

    async def fetch(self, offset: int, version: int = 11, **fields: Any) -> Value:
        asked = {"partition": NUMBER, "fetch_offset": offset, "partition_max_bytes": 700}
        asked |= {name: fields.pop(name) for name in tuple(fields) if name in asked}
        body = {"max_wait_ms": 500, "max_bytes": 1 << 20, **fields}
        body["topics"] = [{"topic": TOPIC, "partitions": [asked]}]
        answer = await self.ask(FETCH, version, body)
        ((row,),) = (topic["partitions"] for topic in answer["responses"])
        found: Value = row
        return found

    async def position(self, timestamp: int, version: int = 7) -> Value:
        asked = {"partition_index": NUMBER, "timestamp": timestamp}
        body = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [asked]}]}
        answer = await self.ask(LIST_OFFSETS, version, body)
        ((row,),) = (topic["partitions"] for topic in answer["topics"])
        found: Value = row
        return found


@asynccontextmanager
async def offsets_in(folder: Path, tasks: asyncio.TaskGroup) -> AsyncIterator[CommittedOffsets]:
    """Those of groups, as the files have them."""
    threads = Threads("offsets", 1)
    committed = CommittedOffsets(folder, threads)
    committed.load()
    writing = tasks.create_task(committed.run())
    try:
        yield committed
    finally:
        writing.cancel()
        threads.close()


@asynccontextmanager
async def proxy(
    path: Path,
    *,
    contexts: Contexts | None = None,
    tls: ssl.SSLContext | None = None,
    groups_in: Path | None = None,
) -> AsyncIterator[tuple[Site, Client]]:
    """`contexts`: TLS of the listener; `tls`: of the client; `groups_in`: where offsets are."""
    async with (
        attached(path) as (site, made),
        asyncio.TaskGroup() as tasks,
        offsets_in(groups_in or path / "groups", tasks) as committed,
    ):
        quota, metrics = _Quota(), Counting()
        address = Address(host="history.example", port=9)
        groups = GroupCoordinator(
            view=made.view,
            committed=committed,
            advertised=address,
            node_id=NODE_ID,
            clock=site.rig.clock,
        )
        answers = HistoryAnswers(
            view=made.view,
            reading=made.reading,
            advertised=address,
            cluster_id=CLUSTER_ID,
            clock=site.rig.clock,
            quota=quota,
            metrics=metrics,
            groups=groups,
        )
        listener = HistoryListener(
            at=Address(host="127.0.0.1", port=0),
            answers=answers,
            tasks=tasks,
            clock=site.rig.clock,
            metrics=metrics,
            contexts=contexts,
        )
        client = Client(await listener.start(), made, metrics, tls)
        client.quota, client.groups = quota, groups
        try:
            yield site, client
        finally:
            await listener.close()


def bases(row: Value) -> list[int]:
    return [header.base_offset for _, header in batch_headers(row["records"])]
