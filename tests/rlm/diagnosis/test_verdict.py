"""A sound site has no findings; what cannot be asked is named, and is not sound."""

from kip405.errors import Unavailable
from rlm.diagnosis.checks import is_counted
from rlm.diagnosis.table import CHECKS
from rlm.plans.problems import Severity
from tests.builders.log_dir import TOPIC
from tests.rlm.diagnosis.world import World


async def test_a_sound_site_has_no_findings(world: World) -> None:
    assert await world.findings() == {}
    examined = await world.examined()
    assert [name for name, one in examined.items() if not one.is_sound] == ["as-client"]
    assert not any(one.is_failed for one in examined.values())


def test_every_check_has_a_name_of_its_own_a_question_and_what_mends_it() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert "?" in check.asks and check.remedy.endswith("."), check.name


async def test_h38_what_needs_settings_that_are_not_read_is_not_sound(world: World) -> None:
    world.settings_refusal = Unavailable("no leader of the settings topic")
    examined = await world.examined()
    unasked = {name for name, one in examined.items() if one.unasked}
    assert {"heartbeats", "broker-retention", "acls", "store-identity", "share-groups"} <= unasked
    assert unasked.isdisjoint({"log-dirs", "listeners", "stores"})
    assert not examined["heartbeats"].is_sound
    assert "no leader of the settings topic" in examined["heartbeats"].unasked


async def test_h38_a_broker_that_refuses_leaves_the_other_checks(world: World) -> None:
    world.own.refuses = Unavailable("connection refused")
    examined = await world.examined()
    assert examined["listeners"].unasked == "connection refused"
    assert examined["log-dirs"].is_sound


async def test_h38_one_silent_broker_leaves_the_retention_of_a_topic_unknown(world: World) -> None:
    world.other.silent[TOPIC] = Unavailable("broker 4 hangs")
    unasked = (await world.examined())["broker-retention"].unasked
    assert unasked == f"{TOPIC} of broker 4: broker 4 hangs"


async def test_before_the_first_service_nothing_is_missing(world: World) -> None:
    world.before_the_first_service()
    assert await world.findings() == {}


async def test_a_note_changes_no_verdict(world: World) -> None:
    world.host = type(world.host)(libc=("glibc", "2.36"), open_files=20_000)
    finding = await world.only("open-files")
    assert finding.severity is Severity.NOTE and not is_counted(finding)
    assert (await world.examined())["open-files"].is_sound


async def test_a_warning_changes_the_verdict(world: World) -> None:
    world.set_topic("min.insync.replicas", "1")
    assert (await world.only("durability")).severity is Severity.WARNING
    examined = (await world.examined())["durability"]
    assert examined.is_failed and not examined.is_sound
