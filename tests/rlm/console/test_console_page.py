"""The console's page in headless Chromium: what it shows, live, hidden, with a token, by keys."""

from collections.abc import AsyncIterator

import pytest

from rlm.api.calls import Gate
from rlm.v1 import admin_pb2 as pb
from tests.builders.clock import ManualClock
from tests.rlm.console.browser import Browser, browser
from tests.rlm.console.sample import HOSTILE, NOW_MS, SEGMENT_ID, sample_cluster
from tests.rlm.console.served import Console, console
from tests.waiting import until

pytestmark = pytest.mark.integration
_ENTER = "\ue007"
VIEWS = {
    "#/": "Cluster",
    "#/topic/orders": "orders",
    "#/topic/orders/1": "Partition 1",
    f"#/topic/orders/1/{SEGMENT_ID}": "Segment 50,000 to 60,000",
    "#/problems": "Problems",
    "#/activity": "Activity",
    "#/readers": "Readers",
    "#/readers/orders": "Readers of orders",
    "#/costs": "Cost",
    "#/kind/partition-frozen": "partition-frozen",
}
_LOADED = """[...document.querySelectorAll('main h1')].some(one => one.textContent.startsWith(%r))
  && !document.querySelector('main .banner') && document.getElementById('verdict').textContent"""

_SHIFTED = """
  const done = arguments[arguments.length - 1];
  let sum = 0;
  const seen = new PerformanceObserver((list) => {
    for (const one of list.getEntries()) sum += one.value;
  });
  seen.observe({type: 'layout-shift', buffered: true});
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(sum), 0)));"""
"""How far the page has moved what it had shown: Chromium's layout shift, of all since it came."""


@pytest.fixture
async def shown() -> AsyncIterator[Console]:
    async with console(sample_cluster(), clock=ManualClock(NOW_MS), acts=True) as made:
        yield made


@pytest.fixture
async def window() -> AsyncIterator[Browser]:
    async with browser() as made:
        yield made


async def _go(window: Browser, shown: Console, path: str) -> None:
    await window.open(f"{shown.url}/console/{path}")
    assert await window.until(_LOADED % VIEWS[path]) == "AT RISK"


async def test_every_view_fits_every_screen_and_breaks_no_rule(
    shown: Console, window: Browser
) -> None:
    for width, scheme in ((1280, "light"), (390, "dark")):
        await window.open("about:blank")
        await window.appearance(width=width, height=900, scheme=scheme)
        for path in VIEWS:
            await _go(window, shown, path)
            wide = await window.run("return document.documentElement.scrollWidth")
            assert wide <= width, f"{path} scrolls sideways at {width}: {wide}"
            unnamed = await window.run(
                """return [...document.querySelectorAll('[role=img], input, select, button, nav')]
                  .filter(one => !one.getAttribute('aria-label') && !one.closest('label')
                    && !one.textContent.trim()).map(one => one.outerHTML)"""
            )
            assert unnamed == [], path
            cut = await window.run(
                """return [...document.querySelectorAll('.card, .card .note, .card .value')]
                  .filter(one => one.scrollWidth > one.clientWidth
                    || one.scrollHeight > one.clientHeight + 1).map(one => one.textContent)"""
            )
            assert cut == [], f"{path} cuts words off at {width}"
            tall = await window.run(
                """return Math.max(
                  ...[...document.querySelectorAll('nav a')].map(one => one.offsetHeight))"""
            )
            assert tall < 44, f"a link of the navigation is broken at {width}"
            moved = await window.command("POST", "/execute/async", {"script": _SHIFTED, "args": []})
            assert moved < 0.05, f"{path} moves what is shown at {width}: {moved}"
    refused = await window.command("POST", "/se/log", {"type": "browser"})
    assert refused == [], "the page broke its Content-Security-Policy, or asked for what is not"


async def test_names_are_text_and_never_markup(shown: Console, window: Browser) -> None:
    for path in (
        "#/readers",
        "#/readers/orders",
        "#/problems",
        "#/",
        f"#/topic/orders/1/{SEGMENT_ID}",
    ):
        await _go(window, shown, path)
        assert HOSTILE in await window.run("return document.querySelector('main').textContent")
        assert await window.run("return document.querySelectorAll('main img').length") == 0


async def test_bars_say_what_they_show(shown: Console, window: Browser) -> None:
    await _go(window, shown, "#/topic/orders")
    bars = await window.run(
        """return [...document.querySelectorAll('td .bar')].map(one =>
          [one.getAttribute('aria-label'), [...one.children].map(part => part.className)])"""
    )
    text = await window.run("return document.querySelector('main').textContent")
    assert "1 h old or at local retention by size" in text
    parts = [found for _, found in bars]
    assert parts[0] == ["remote", "both", "local"]
    assert parts[1] == ["remote", "hole", "remote", "both", "copying", "local"]
    assert parts[2] == ["remote", "broken", "local"] and "Frozen" in bars[2][0]
    assert parts[3] == [] and "not known" in bars[3][0]
    assert parts[4] == ["local"]


async def test_it_follows_its_service_and_keeps_focus_and_what_is_typed(
    shown: Console, window: Browser
) -> None:
    await _go(window, shown, "#/")
    await window.run("document.querySelector('h1').focus()")
    await window.keys("body", "/")
    assert await window.run("return document.activeElement.id") == "search"
    await window.keys("#search", "orders")
    await window.until("document.querySelectorAll('main tbody a').length === 1")
    shown.clock.advance(3_000)
    del shown.shown.status.problems[:]
    for row in shown.shown.status.partitions:
        row.log_end_offset += 30_000
    await window.until("!document.querySelector('ul.problems')")
    assert await window.run("return document.getElementById('search').value") == "orders"
    assert await window.run("return document.activeElement.id") == "search"


async def test_what_costs_a_service_much_is_asked_for_once(shown: Console, window: Browser) -> None:
    await _go(window, shown, "#/topic/orders/1")
    await window.until("document.querySelector('.sentences')")
    shown.clock.advance(3_000)
    shown.shown.status.partitions[1].leader_epoch = 77
    await window.until("document.querySelector('.pairs').textContent.includes('epoch 77')")
    assert [shown.shown.asked.count(one) for one in ("explanation", "segments")] == [1, 1]
    await window.keys("[name=offset]", "1250000\ue007")
    await window.until("document.querySelector('[name=offset]').value === '1250000'")
    shown.clock.advance(3_000)
    shown.shown.status.partitions[1].leader_epoch = 78
    await window.until("document.querySelector('.pairs').textContent.includes('epoch 78')")
    assert [shown.shown.asked.count(one) for one in ("explanation", "segments")] == [2, 1]


async def test_a_service_that_is_away_makes_what_is_shown_old(
    shown: Console, window: Browser
) -> None:
    await _go(window, shown, "#/")
    await window.cdp("Network.enable")
    lost = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await window.cdp("Network.emulateNetworkConditions", offline=True, **lost)
    await window.until("document.querySelector('main .banner')?.textContent.includes('is old')")
    assert "orders" in await window.run("return document.querySelector('main').textContent")
    await window.cdp("Network.emulateNetworkConditions", offline=False, **lost)
    await window.until("!document.querySelector('main .banner')")


async def test_a_hidden_page_asks_for_nothing(shown: Console, window: Browser) -> None:
    await _go(window, shown, "#/")
    hide = """Object.defineProperty(document, 'hidden', {value: %s, configurable: true});
      window.asked = 0; const real = window.fetch;
      window.fetch = (...of) => { window.asked += 1; return real(...of); };
      const timers = window.timers = []; const set = window.setTimeout;
      window.setTimeout = (...of) => { timers.push(of[1]); return set(...of); };
      document.dispatchEvent(new Event('visibilitychange'));
      return timers.length"""
    assert await window.run(hide % "true") == 0, "nothing is due while the page is hidden"
    assert await window.run(hide % "false") == 1, "seen again, it asks at once"


async def test_the_token_is_asked_for_and_kept_in_memory_alone(window: Browser) -> None:
    gate = Gate(lambda: ("right",))
    async with console(
        sample_cluster(), gate=gate, api_asks=True, clock=ManualClock(NOW_MS)
    ) as shown:
        await window.open(f"{shown.url}/console/")
        await window.until("document.getElementById('token').open")
        assert await window.run("return document.querySelectorAll('main table').length") == 0
        await window.keys("#token-value", "wrong\ue007")
        await window.until(
            "document.getElementById('token').open"
            " && document.getElementById('token-why').textContent.includes('no valid token')"
        )
        await window.keys("#token-value", "right\ue007")
        await window.until(_LOADED % "Cluster")
        kept = "return [document.cookie, localStorage.length, sessionStorage.length, location.href]"
        cookie, local, session, address = await window.run(kept)
        assert (cookie, local, session) == ("", 0, 0) and "right" not in address
        assert "right" not in await window.run("return document.documentElement.outerHTML")
        await window.command("POST", "/refresh")
        await window.until("document.getElementById('token').open")


async def test_an_action_asks_first_and_reports_what_comes_of_it(
    shown: Console, window: Browser
) -> None:
    progress = pb.CopyProgress(topic="orders", doing="copying", segments=1, segments_total=3)
    failed = pb.CopiedPartition(topic="orders", partition=3, why="no leader")
    shown.shown.copied = [
        pb.CopyClosedResponse(progress=progress),
        pb.CopyClosedResponse(partition=failed),
    ]
    shown.shown.holds.clear()
    await _go(window, shown, "#/topic/orders")
    await window.keys(".actions button", _ENTER)
    assert "orders" in await window.until("document.querySelector('#action[open]')?.textContent")
    await window.keys("#action button[type=button]", _ENTER)
    await window.until("!document.querySelector('#action[open]')")
    assert shown.shown.commands == []
    await window.keys(".actions button", _ENTER)
    await window.keys("#action button[type=submit]", _ENTER)
    said = await window.until(
        "document.querySelectorAll('#runs .note').length === 2"
        " && document.getElementById('runs').textContent"
    )
    assert "running" in said and "1 of 3 segments" in said and "orders-3: no leader" in said
    shown.shown.holds.set()
    await window.until("document.querySelector('#runs .subject').textContent.includes('done')")
    assert [name for name, _ in shown.shown.commands] == ["copy"]
    await window.keys("#runs button", _ENTER)
    await window.until("document.querySelectorAll('#runs li').length === 0")


async def test_a_freeze_needs_a_reason_and_a_stop_ends_a_copy(
    shown: Console, window: Browser
) -> None:
    shown.shown.holds.clear()
    shown.shown.copied = [pb.CopyClosedResponse(progress=pb.CopyProgress(topic="orders"))]
    await _go(window, shown, "#/topic/orders")
    await window.keys(".actions button:nth-child(3)", _ENTER)
    await window.keys("#action button[type=submit]", _ENTER)
    assert await window.run("return document.getElementById('action').open")
    await window.keys("#action-input", "not meant so")
    await window.keys("#action .answers button", _ENTER)
    assert not await window.run("return document.getElementById('action').open")
    await window.keys(".actions button:nth-child(3)", _ENTER)
    await window.keys("#action-input", f"legal{_ENTER}")
    await window.until("document.querySelector('#runs .subject')?.textContent.includes('done')")
    assert shown.shown.commands == [("freeze", pb.FreezeRequest(topic="orders", why="legal"))]
    await window.keys(".actions button", _ENTER)
    await window.keys("#action button[type=submit]", _ENTER)
    await window.until("document.querySelector('#runs .note')")
    await window.keys("#runs button", _ENTER)
    await window.until("document.querySelector('#runs .subject').textContent.includes('stopped')")
    await until(lambda: "copy is given up" in shown.shown.asked)


async def test_a_console_that_only_reads_offers_nothing(window: Browser) -> None:
    async with console(sample_cluster(), clock=ManualClock(NOW_MS)) as shown:
        for path in ("#/", "#/topic/orders", "#/topic/orders/1", "#/activity"):
            await _go(window, shown, path)
            assert await window.run("return document.querySelector('.actions, td button')") is None
