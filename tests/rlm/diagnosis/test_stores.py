"""Faults of stores that `rlm doctor` finds."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import FindingKind, StoreFinding, StoreIdentity
from kip405.ids import Uuid
from rlm.plans.problems import Severity
from rlmm.settings_records import StoreRecord
from tests.rlm.diagnosis.world import CLUSTER_ID, STORE_ID, WELL, World

OTHER = Uuid(b"\x66" * 16)


async def test_h11_a_store_that_refuses_the_credentials(world: World) -> None:
    world.store = replace(world.store, problem="bucket hot: AccessDenied (403)")
    finding = await world.only("stores")
    assert (finding.severity, finding.text) == (Severity.ALARM, "bucket hot: AccessDenied (403)")
    assert "credentials" in finding.remedy


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (None, "the store has no identity"),
        (StoreIdentity(store_id=OTHER, cluster_id=CLUSTER_ID, created_ms=1), str(OTHER)),
        (StoreIdentity(store_id=STORE_ID, cluster_id="theirs", created_ms=1), "cluster theirs"),
    ],
)
async def test_h11_another_store_under_the_name_of_this_one(
    world: World, identity: StoreIdentity | None, said: str
) -> None:
    world.store = replace(world.store, identity=identity)
    finding = await world.only("store-identity")
    assert said in finding.text and "'default' is the name of that one" in finding.text
    assert "give another store a new name" in finding.remedy


async def test_h11_the_store_of_another_cluster_under_a_new_name(world: World) -> None:
    identity = StoreIdentity(store_id=OTHER, cluster_id="theirs", created_ms=1)
    world.store = replace(world.store, name="new", identity=identity)
    first, second = (await world.findings())["store-identity"]
    assert "belongs to cluster theirs, not to ours" in first.text
    assert "a prefix of its own" in first.remedy
    assert (second.severity, second.subject) == (Severity.WARNING, "store default")


async def test_a_store_that_the_cluster_knows_and_nobody_configured(world: World) -> None:
    world.settings.write(
        StoreRecord(store_id=OTHER, plugin="s3", uri="s3://cold", prefix="", names=("cold",))
    )
    finding = await world.only("store-identity")
    assert finding.subject == "store cold" and "s3://cold" in finding.text
    assert "stores again" in finding.remedy


async def test_h11_a_lifecycle_rule_that_removes_segments_too_early(world: World) -> None:
    rule = StoreFinding(kind=FindingKind.LIFECYCLE_EXPIRY, state="Enabled", days=1, applies_to="")
    world.store = replace(world.store, findings=(rule,), prefix="")
    found = (await world.findings())["store-setup"]
    assert {one.severity for one in found} == {Severity.ALARM}
    assert "removes objects after 1 d" in found[0].text and "not ours" in found[0].remedy


async def test_a_store_that_is_nearly_full(tmp_path: Path) -> None:
    world = World(tmp_path, **{"disk.min.free.bytes": 1024})
    free = StoreFinding(kind=FindingKind.FREE_SPACE, state="1023 of 4096 bytes free", value=1023)
    world.store = replace(world.store, findings=(free,))
    finding = await world.only("store-space")
    assert "brokers keep all that comes" in finding.text and "total retention" in finding.remedy


async def test_a_store_that_copies_fill_soon(world: World) -> None:
    free = StoreFinding(kind=FindingKind.FREE_SPACE, state="3600 of 9000 bytes free", value=3600)
    world.store = replace(world.store, findings=(free,))
    assert await world.findings() == {}
    world.service = replace(WELL, copy_bytes_per_second=1.0)
    finding = await world.only("store-growth")
    assert finding.severity is Severity.WARNING
    assert "are copied in 60 min" in finding.text and "rlm copy-limit" in finding.remedy
