"""`rsm-plugin conformance ADDRESS` as a command, against a served plugin of each kind; and plugins
that die in the middle of a copy.
"""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kip405.contracts import Presence
from kip405.errors import Invalid, Unavailable
from kip405.segments import Layout
from rsm_plugins.conformance.command import Dialled, opened_subject, try_plugin
from rsm_plugins.conformance.runner import CASES, WIRE_CASES, name_of
from rsm_plugins.conformance.subject import StoredSegment, Subject
from rsm_plugins.layout.keys import DATA_OBJECTS
from rsm_plugins.process.config import settings_of
from rsm_plugins.process.plugin import running_server
from tests.builders.certificates import Authority
from tests.rsm_plugins.conftest import HDFS, KINDS
from tests.rsm_plugins.stores import (
    DIRECT,
    ROOT,
    StoreRig,
    address_of,
    dialled,
    local_rig,
    opened,
    served,
    start_plugin,
)
from tests.rsm_plugins.test_probe import old_plugin
from tests.waiting import until

LARGE_BYTES = 64 << 20
TRIES = 10


async def conformance(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rsm_plugins.process.main", "conformance", *arguments]
    return await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rig", ("local", "s3"), indirect=True)
async def test_the_command(rig: StoreRig, tmp_path: Path) -> None:
    await _every_case_passes(rig, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rig", [HDFS], indirect=True)
async def test_the_command_with_every_case(rig: StoreRig, tmp_path: Path) -> None:
    await _every_case_passes(rig, tmp_path)


async def _every_case_passes(rig: StoreRig, folder: Path) -> None:
    """One line a case, a summary, status 0; nothing but the identity stays in the store."""
    async with served(rig, folder) as address:
        done = await conformance(address, "--many", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, summary = done.stdout.splitlines()
    count = len(CASES) * 2 + len(WIRE_CASES)
    assert len(lines) == count
    assert [line for line in lines if not line.startswith(("ok  ", "skip"))] == []
    skipped = [line.split()[2] for line in lines if line.startswith("skip")]
    assert skipped == ["leftovers_are_swept"] * 2
    assert all(": " in line for line in lines if line.startswith("skip")), "skipped without reason"
    assert summary == f"{count - 2} cases passed, 0 failed, 2 skipped"
    assert rig.hands.names() == ["rlm-store.json"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rig", [HDFS], indirect=True)
async def test_the_command_with_chosen_cases(rig: StoreRig, tmp_path: Path) -> None:
    """A sample of each kind of case where all of them take too long for CI."""
    names = ("upload_fetch_delete", "random_ranges", "lists_many", "slow_bodies_arrive")
    chosen = [part for name in names for part in ("--case", name)]
    async with served(rig, tmp_path) as address:
        done = await conformance(address, "--many", "60", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "7 cases passed, 0 failed, 0 skipped"
    assert rig.hands.names() == ["rlm-store.json"]


async def test_cases_that_fail_give_status_1(tmp_path: Path) -> None:
    rig = local_rig(tmp_path)
    async with served(rig, tmp_path) as address:
        rig.hands.move_away()
        done = await conformance(
            address, "--case", "manifest_comes_last", "--case", "slow_bodies_arrive"
        )
    assert done.returncode == 1, done.stdout
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert [line.split()[1:3] for line in failed] == [
        ["bytes", "manifest_comes_last"],
        ["wire", "slow_bodies_arrive"],
        ["files", "manifest_comes_last"],
    ]
    assert all("Unavailable: " in line for line in failed)
    assert done.stdout.splitlines()[-1] == "0 cases passed, 3 failed, 0 skipped"


async def test_wrong_use_gives_one_line_and_a_status(tmp_path: Path) -> None:
    async with served(local_rig(tmp_path), tmp_path) as address:
        wrong = {
            (
                address,
                "--case",
                "range_in_the_midle",
            ): "there is no case 'range_in_the_midle'; near it:",
            ("example.org:1",): "is not loopback",
            (): "ADDRESS is missing",
        }
        for arguments, why in wrong.items():
            done = await conformance(*arguments)
            assert (done.returncode, done.stdout) == (2, ""), done.stdout
            assert why in done.stderr
            assert done.stderr.count("\n") == 1
    done = await conformance(address)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"rsm-plugin: plugin {address}: get info:")


async def test_a_plugin_that_wants_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    plugin, client = authority.issue("plugin", "plugin.example"), authority.issue("client")
    tls = {
        "tls.cert.file": str(plugin.cert_file),
        "tls.key.file": str(plugin.key_file),
        "tls.client.ca.file": str(authority.ca_file),
    }
    shown = {
        "--tls-ca": authority.ca_file,
        "--tls-cert": client.cert_file,
        "--tls-key": client.key_file,
        "--tls-name": "plugin.example",
    }
    options = [str(part) for option in shown.items() for part in option]
    cases = ["--case", "upload_fetch_delete", "--case", "calls_need_a_principal"]
    async with served(local_rig(tmp_path), tmp_path, **tls) as address:
        done = await conformance(address, *options, *cases)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "3 cases passed, 0 failed, 0 skipped"
        done = await conformance(address, *options[:2], *cases)
        assert (done.returncode, done.stdout) == (1, "")


async def test_every_segment_has_the_layout_that_is_asked_for(tmp_path: Path) -> None:
    rig = local_rig(tmp_path).in_pinterests_form()
    async with running_server(settings_of(rig.content())) as (address, *_):
        for layout in Layout:
            asked = dialled_for(str(address), layout)
            async with opened_subject(asked, share=False) as (subject, _):
                await subject.ensure_identity()
                await subject.copy(subject.segment())
                stored = [Path(name).suffix for name in rig.hands.names()]
                own = DATA_OBJECTS[layout][0].value
                kinds = {kinds[0].value for kinds in DATA_OBJECTS.values()}
                assert {suffix[1:] for suffix in stored} & kinds == {own}, stored
                await subject.clean_up()
        done = await conformance(str(address), "--layout", "blocks", "--case", "random_ranges")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "2 cases passed, 0 failed, 0 skipped"


async def test_a_layout_that_the_plugin_does_not_name_is_wrong_use() -> None:
    async with old_plugin() as address:
        with pytest.raises(Invalid, match=r"--layout blocks: .* not name LAYOUT_BLOCKS"):
            await try_plugin(dialled_for(address, Layout.BLOCKS), lambda _: None)


def dialled_for(address: str, layout: Layout) -> Dialled:
    return Dialled(
        address=address,
        principal="test",
        allow_insecure=False,
        tls=None,
        cases=("random_ranges",),
        many=60,
        case_seconds=60.0,
        layout=layout,
    )


async def test_the_list_names_every_case() -> None:
    done = await conformance("--list")
    assert done.returncode == 0
    listed = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert listed == [name_of(case) for case in (*CASES, *WIRE_CASES)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rig", KINDS, indirect=True)
async def test_a_plugin_killed_in_mid_copy(rig: StoreRig, tmp_path: Path) -> None:
    """Nothing of the copy is visible, the same copy works afterwards, and what is left is swept."""
    async with opened(rig, DIRECT, tmp_path) as direct:
        await direct.ensure_identity()
        segment = await _killed_in_mid_copy(rig, direct, tmp_path)
        found = await direct.presence(segment)
        assert (found.presence, found.manifest_present) == (Presence.MISSING, False)
        with pytest.raises(Exception, match=str(segment.locator.segment_id.id)):
            await direct.fetch(segment.locator, 0, 1)
        await direct.complete(segment)
        assert await direct.fetch(segment.locator, 0, 1 << 40) == segment.log
        assert (await direct.presence(segment)).presence is Presence.COMPLETE
        assert direct.sweep is not None
        await direct.sweep(0)
        await direct.clean_up()
        assert rig.hands.names() == ["rlm-store.json"]


async def _killed_in_mid_copy(rig: StoreRig, direct: Subject, folder: Path) -> StoredSegment:
    """What was being copied; some copies may be over before their plugin is killed."""
    for _ in range(TRIES):
        segment = direct.segment(log_size_bytes=LARGE_BYTES)
        if await _copy_and_kill(rig, segment, folder):
            return segment
    raise AssertionError("each copy was over before the plugin was killed")


async def _copy_and_kill(rig: StoreRig, segment: StoredSegment, folder: Path) -> bool:
    """Kill the plugin as soon as the store holds something of the copy. Whether that broke it."""
    before = rig.hands.names()
    sources = folder / "sources"
    with start_plugin(rig, folder) as process:
        try:
            async with AsyncExitStack() as stack:
                address = address_of(process, folder)
                subject = await dialled(rig, address, sources, stack, share=True)
                copying = asyncio.create_task(_refused(subject, segment))
                await until(lambda: copying.done() or rig.hands.names() != before)
                process.kill()
                return await copying
        finally:
            process.kill()


async def _refused(subject: Subject, segment: StoredSegment) -> bool:
    try:
        await subject.copy(segment)
    except Unavailable:
        return True
    return False
