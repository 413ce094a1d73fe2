"""What the doctor asks a running service, over a real channel."""

from pathlib import Path

import pytest

from kip405.errors import Unavailable
from rlm.diagnosis.observed import ObservedService, Unasked
from rlm.diagnosis.service_calls import ask_service
from rlm.plans.problems import Problem, ProblemKind, Severity
from rlm.topics.ports import GroupOffset
from rlmm.settings_records import ServiceRecord
from rlmm.settings_view import SettingsView
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemorySettings
from tests.builders.log_dir import TOPIC
from tests.builders.service import NOBODY, NODE_ID, broker_config
from tests.rlm.api.harness import api_node
from tests.rlm.topics.cluster import Cluster

_ANSWER_MS = 60_000


def heard_at(address: str) -> SettingsView:
    """Settings in which the service beside our broker has published its address."""
    settings = MemorySettings()
    addresses = {"grpc": address}
    settings.write(
        ServiceRecord(node_id=NODE_ID, listen=addresses, advertised=addresses, version="1.0")
    )
    return settings.view


async def asked(path: Path, view: SettingsView) -> ObservedService | None:
    return await ask_service(broker_config(path, {}), ManualClock(), _ANSWER_MS, view, [TOPIC])


async def test_a_service_says_its_problems_and_which_groups_no_proxy_has_seen(
    tmp_path: Path,
) -> None:
    cluster = Cluster()
    cluster.groups = (GroupOffset(group="nightly", partition=0, offset=3),)
    async with api_node(cluster, node_id=1) as node:
        node.statuses.problems = [
            Problem(kind=ProblemKind.LOG_DIR_FILLS, subject="log dir /d", text="full", since_ms=1),
        ]
        found = await asked(tmp_path, heard_at(node.address))
    assert found is not None
    [problem] = found.problems
    assert (problem.severity, problem.kind) == (Severity.WARNING, "log-dir-fills")
    assert (problem.subject, problem.text) == ("log dir /d", "full")
    assert found.direct_groups == {TOPIC: ("nightly",)}


async def test_h38_groups_that_could_not_be_read_are_unknown(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.groups_error = Unavailable("no coordinator")
    async with api_node(cluster, node_id=1) as node:
        found = await asked(tmp_path, heard_at(node.address))
    assert found is not None
    assert found.direct_groups == {TOPIC: Unasked(reason=f"groups of {TOPIC}: no coordinator")}


async def test_a_service_that_was_never_heard_is_not_asked(tmp_path: Path) -> None:
    assert await asked(tmp_path, SettingsView()) is None


async def test_h38_a_service_that_is_away_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=str(NOBODY)):
        await asked(tmp_path, heard_at(str(NOBODY)))
