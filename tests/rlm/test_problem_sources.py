"""What the rules find in the state of the stores (H38)."""

import pytest

from rlm.plans.problems import Finding, ProblemKind
from rlm.service.problems import CommonSources
from rlmm.settings_records import StoreRecord
from tests.builders.clock import ManualClock
from tests.rlm.stores.test_routes import GONE
from tests.rlm.stores.test_service_stores import World
from tests.rlm.watched import LIMITS


class FakeMetadata:
    """Ledger, settings and their log without a problem."""

    is_ready = True
    problem: str | None = None
    loss: str | None = None


def findings(world: World) -> list[Finding]:
    """Of a service that began just now."""
    clock, metadata = ManualClock(), FakeMetadata()
    sources = CommonSources(
        ledger=metadata,
        settings=metadata,
        log=metadata,
        stores=world.service_stores,
        certificates=NoCertificates(),
        clock=clock,
        limits=LIMITS,
        hung_threads=tuple,
        refusals=dict,
    )
    return [finding for source in sources.sources() for finding in source()]


class NoCertificates:
    files: tuple[()] = ()


def kinds(world: World) -> list[ProblemKind]:
    return [finding.kind for finding in findings(world)]


def test_stores_that_are_well_are_no_problem() -> None:
    assert kinds(World()) == []


def test_no_store_at_all_is_reported() -> None:
    assert kinds(World(())) == [ProblemKind.NO_STORE]


@pytest.mark.parametrize(
    ("is_known", "kind"),
    [(True, ProblemKind.STORE_UNAVAILABLE), (False, ProblemKind.STARTING)],
)
async def test_h38_a_store_that_nobody_names_is_an_alarm_once_the_others_are_known(
    is_known: bool, kind: ProblemKind
) -> None:
    world = World()
    world.settings.write(StoreRecord(store_id=GONE, plugin="s3", uri="s3://gone", prefix=""))
    world.segment(1, GONE)
    await world.service_stores.opened.in_use.refresh()
    if not is_known:
        world.connections["cold"].store_id = None
    [found] = [finding for finding in findings(world) if finding.subject == f"store {GONE}"]
    assert found.kind is kind
