"""Real Kafka for tests: session-wide clusters that are gone, with their data, when the tests are.

RLM_KEEP_SANDBOX=1 leaves the directories (not the processes) behind, to look at the logs.
RLM_TEST_WORKERS=N gives every service so many proxy workers; with RLM_TEST_LAYOUT=blocks or
=pinterest new segments have that layout where a test does not choose one; with
RLM_TEST_REMOTE_INDEX=on services keep remote index files.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from rlm_sandbox.stores.objects import s3_client
from tests.endings import ended_early

PINTEREST = "pinterest"
PINTEREST_KEYS = {
    "rsm.config.pinterest.cluster": "their-cluster",
    "rsm.config.pinterest.prefix": "their-prefix",
    "rsm.config.pinterest.entropy.bits": "3",
}
"""Settings of a store without which it does not write that layout."""
_PATIENT = {
    "broker.session.timeout.ms": "30000",
    "transaction.max.timeout.ms": "14400000",
}
"""Settings of a single broker. Of the second: what a test leaves open is open for all tests."""
_STEADY = {"broker.session.timeout.ms": "6000"}
"""Of several: a leader stays one where the machine stands still for some seconds, and soon is none
when it has been killed.
"""
SandboxFactory = Callable[..., Sandbox]
"""Keyword arguments of SandboxSpec; `overrides` as strings like `broker.KEY=V`."""


def patient(spec: SandboxSpec) -> SandboxSpec:
    """The spec whose only broker stays the leader where the machine stands still for some seconds;
    else its partitions would lose it for a moment, and get two leader epochs and new coordinators.
    A broker that was killed starts again after that time only, so tests stop it. Several brokers
    are steady.
    """
    chosen = _PATIENT if spec.brokers == 1 else _STEADY
    if {one.key for one in spec.overrides} & chosen.keys():
        return spec
    added = (Override(scope="broker", key=key, value=one) for key, one in chosen.items())
    return replace(spec, overrides=(*spec.overrides, *added))


def with_workers(spec: SandboxSpec, count: str | None = None) -> SandboxSpec:
    """The spec with so many proxy workers, by default as RLM_TEST_WORKERS says, with the layout of
    RLM_TEST_LAYOUT, and with remote index files as RLM_TEST_REMOTE_INDEX says. A single broker is
    patient and several are steady, where they have a service.
    """
    asked = {
        "proxy.workers": count or os.environ.get("RLM_TEST_WORKERS"),
        "storage.layout": os.environ.get("RLM_TEST_LAYOUT"),
        "remote.index.files": os.environ.get("RLM_TEST_REMOTE_INDEX"),
    }
    if not spec.services:
        return spec
    chosen = [Override(scope="rlm", key=key, value=one) for key, one in asked.items() if one]
    if asked["storage.layout"] == PINTEREST:
        chosen += [
            Override(scope="store", key=key, value=one) for key, one in PINTEREST_KEYS.items()
        ]
    return patient(replace(spec, overrides=(*spec.overrides, *chosen)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    """Brokers only: no service, no plugin."""

    sandbox: Sandbox
    bootstrap_servers: str
    log_dirs: tuple[Path, ...]


@pytest.fixture(scope="session")
def kafka_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    """One broker alone, until its last test: use topic names of your own."""
    made = Sandbox.up(
        tmp_path_factory.mktemp("kafka"), patient(SandboxSpec(services=False, jvm="quick"))
    )
    with ended_early(request, lambda: _down(made)):
        yield KafkaCluster(
            sandbox=made,
            bootstrap_servers=made.direct_bootstrap,
            log_dirs=made.log_dirs(),
        )


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One broker with plugin and service, for the whole session: use topic names of your own."""
    made = _up(tmp_path_factory.mktemp("sandbox"))
    try:
        yield made
    finally:
        _down(made)


@pytest.fixture
def sandbox_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxFactory]:
    """Makes sandboxes for one test that kills or reconfigures its own."""
    all_made: list[Sandbox] = []

    def make(**options: Any) -> Sandbox:
        made = _up(tmp_path_factory.mktemp("sandbox"), **options)
        all_made.append(made)
        return made

    try:
        yield make
    finally:
        for made in all_made:
            if made.layout.state.exists():
                _down(made)


def _up(root: Path, *, overrides: tuple[str, ...] = (), **options: Any) -> Sandbox:
    parsed = tuple(Override.parse(text) for text in overrides)
    spec = SandboxSpec(**{"jvm": "quick", **options}, overrides=parsed)
    return with_versions(Sandbox.up(root, with_workers(spec)))


def with_versions(made: Sandbox) -> Sandbox:
    """The same sandbox, whose bucket has versions if RLM_TEST_LAYOUT needs them. Nothing is copied
    yet: topics are enabled later.
    """
    if os.environ.get("RLM_TEST_LAYOUT") == PINTEREST:
        enable_versioning(made)
    return made


def enable_versioning(made: Sandbox) -> None:
    """Have versions in the sandbox's bucket, if its store is one."""
    store = made.json["store"]
    if store["kind"] == "s3":
        s3_client(store).put_bucket_versioning(
            Bucket=store["bucket"], VersioningConfiguration={"Status": "Enabled"}
        )


def _down(made: Sandbox) -> None:
    made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))
