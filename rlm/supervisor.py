"""Keeps a component's life going: what ends or fails is logged and begun again, with back-off.

A crash of lanes, ledger client or poller must not take the proxy down (H24).
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rlm.clock import Clock, backoff_ms

log = structlog.get_logger()
_STEADY_MS = 30_000


async def keep_running(name: str, life: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run `life` for ever; ends only by cancellation."""
    failures = 0
    while True:
        began_ms = clock.monotonic_ms()
        try:
            await life()
            log.warning("component_ended", component=name)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("component_failed", component=name)
        failures = 0 if clock.monotonic_ms() - began_ms > _STEADY_MS else failures + 1
        await clock.sleep_ms(backoff_ms(failures))
