"""The servers of a sandbox's store alone: the verbs on all and on one of them; data survive."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rlm.clock import SystemClock
from rlm_sandbox import state as states
from rlm_sandbox.document import sandbox_document
from rlm_sandbox.kafka_dist import resolve_kafka
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.sandbox import STORE, Verbs, take_down
from rlm_sandbox.spec import KAFKA_VERSION, STORE_PROCESSES, Layout, SandboxError, SandboxSpec
from rlm_sandbox.state import prepared
from rlm_sandbox.stores.choice import sandbox_store
from rlm_sandbox.stores.objects import s3_client, store_objects

pytestmark = pytest.mark.integration
CONTENT = b"kept\x00" * 1000
NAME = "cluster/topic-id/0/name with space.log"


class Servers:
    """The store of a sandbox whose brokers and services were never started."""

    def __init__(self, root: Path, kind: str) -> None:
        self.layout = Layout(root=root)
        root.mkdir()
        with PortReservation() as ports:
            state = prepared(self.layout, SandboxSpec(store=kind), None, ports)
        states.save(self.layout, state)
        self.store = sandbox_store(self.layout, state)
        self.store.resolve(print)
        self.store.prepare()
        self.verbs = Verbs(
            layout=self.layout,
            dists={KAFKA_VERSION: resolve_kafka()},
            clock=SystemClock(),
            service_variables={},
        )

    def states(self) -> set[str]:
        processes = states.load_existing(self.layout.root).processes
        return {identity.state() for identity in processes.values()}

    def document(self) -> dict[str, Any]:
        state = states.load_existing(self.layout.root)
        return dict(sandbox_document(self.layout, state)["store"])


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    made = Servers(
        tmp_path / ("plain" if request.param == "hdfs" else "with space é"), request.param
    )
    try:
        yield made
    finally:
        take_down(made.layout.root)


def put(store: dict[str, Any]) -> None:
    if store["kind"] == "s3":
        s3_client(store).put_object(Bucket=store["bucket"], Key=NAME, Body=CONTENT)
        return
    from hdfs_native import Client, WriteOptions

    path = f"{urlsplit(store['uri']).path}/{NAME}"
    with Client(store["uri"]).create(path, WriteOptions(create_parent=True)) as file:
        file.write(CONTENT)


@pytest.mark.parametrize(
    "servers", ["s3", pytest.param("hdfs", marks=pytest.mark.long)], indirect=True
)
def test_a_store_lives_through_all_verbs(servers: Servers) -> None:
    verbs, kind = servers.verbs, servers.document()["kind"]
    verbs.start(STORE, wait=True)
    servers.store.create()
    servers.store.create()
    first = servers.document()
    objects = store_objects(first)
    assert objects.sizes() == {}
    put(first)
    assert objects.sizes() == {NAME: len(CONTENT)}
    with pytest.raises(SandboxError, match="is running"):
        verbs.start(STORE, wait=True)

    verbs.pause(STORE)
    assert servers.states() == {"paused"}
    verbs.resume(STORE)
    assert servers.states() == {"running"}
    last = STORE_PROCESSES[kind][-1]
    verbs.kill(last)
    with pytest.raises(SandboxError, match=f"{last} is not running"):
        verbs.pause(last)
    verbs.start(last, wait=True)
    assert servers.document()["pids"][-1] != first["pids"][-1]

    verbs.stop(STORE)
    assert servers.states() == {"stopped"}
    verbs.start(STORE, wait=True)
    again = store_objects(servers.document())
    assert again.read(NAME) == CONTENT
    again.delete([NAME])
    assert again.sizes() == {}
