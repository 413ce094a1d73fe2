"""Browsers of tests start on a busy machine: a port that somebody has, and a Chromium that crashes
at its start, fail no test; any other error is shown in its own words. Nothing is left running.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from rlm_sandbox.ports import PortReservation
from tests.rlm.console.browser import (
    STARTS_MAX,
    PortTaken,
    browser,
    driver,
    installed,
    new_session,
)
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def program() -> str:
    return installed()[0]


@pytest.fixture
def chromium() -> str:
    return installed()[1]


@pytest.fixture
def ports() -> Iterator[PortReservation]:
    with PortReservation() as made:
        yield made


async def test_it_is_started_with_another_port_where_somebody_listens(
    program: str, ports: PortReservation, tmp_path: Path
) -> None:
    free = ports.take()
    ports.lend(free)
    given = iter([*(ports.take() for _ in range(STARTS_MAX - 1)), free])
    async with driver(program, tmp_path, lambda: next(given)) as one:
        assert one.url.endswith(f":{free}")
        async with aiohttp.ClientSession() as session, session.get(f"{one.url}/status") as answer:
            assert (await answer.json())["value"]["ready"]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", free)


async def test_it_is_started_no_more_than_a_few_times(
    program: str, ports: PortReservation, tmp_path: Path
) -> None:
    given: list[int] = []

    def taken() -> int:
        given.append(ports.take())
        return given[-1]

    with pytest.raises(PortTaken, match=r"IPv4 port not available.*"):
        async with driver(program, tmp_path, taken):
            pass
    assert len(given) == STARTS_MAX


async def test_any_other_end_is_an_error_at_once_in_its_own_words(
    program: str, tmp_path: Path
) -> None:
    given = iter([99_999])
    with pytest.raises(AssertionError, match=r"ended with 1: Invalid port\. Exiting"):
        async with driver(program, tmp_path, lambda: next(given)):
            pass


@pytest.fixture
def folder() -> Iterator[Path]:
    """Chromium has a socket there, so its path is short."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        yield Path(made)


def _crashing(folder: Path, chromium: str, times: int) -> str:
    """A Chromium that ends so often before it starts."""
    script = folder / "chromium"
    starts = folder / "starts"
    script.write_text(
        f"""#!/bin/sh
        echo >> {starts}
        echo the library is missing >&2
        [ $(wc -l < {starts}) -gt {times} ] || exit 1
        exec {chromium} "$@"
        """
    )
    script.chmod(0o755)
    return str(script)


async def test_a_chromium_that_crashes_at_its_start_is_started_again(
    chromium: str, tmp_path: Path
) -> None:
    async with browser(_crashing(tmp_path, chromium, STARTS_MAX - 1)) as window:
        assert await window.run("return 1 + 1") == 2


async def test_a_chromium_that_always_crashes_is_an_error_that_says_so(
    chromium: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"Chrome instance exited(.|\n)*library is missing"):
        async with browser(_crashing(tmp_path, chromium, STARTS_MAX)):
            pass
    assert (tmp_path / "starts").read_text().count("\n") == STARTS_MAX


async def test_a_browser_that_nobody_ended_is_ended_with_its_driver(
    program: str, chromium: str, ports: PortReservation, folder: Path
) -> None:
    port = ports.take()
    ports.lend(port)
    async with driver(program, folder, lambda: port) as one, aiohttp.ClientSession() as session:
        await new_session(session, one, chromium)
        assert len(_running(one.pid)) > 1
    await until(lambda: not _running(one.pid))


def _running(group: int) -> list[str]:
    """The processes of a group, but for those that have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of, *_ = path.read_text().rpartition(")")[2].split()
            if int(of) == group and state not in "ZX":
                found.append(path.parent.name)
    return found


async def test_without_a_chromium_the_test_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="no Chromium with its driver"):
        async with browser(str(tmp_path / "none")):
            pass
