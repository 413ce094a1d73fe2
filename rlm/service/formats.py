"""Lets the work of a service begin once it is known that it reads what is there (H6).

Until then a service passes bytes and reads ledger and settings; it writes nothing, not even a
heartbeat, which would replace that of a later version.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kip405.errors import Invalid
from rlm.plans.formats import newer_format
from rlmm.formats import Formats
from rlmm.manager import Metadata


class FormatGate:
    """Opens once, when ledger and settings are read and have nothing of a newer format."""

    def __init__(self, metadata: Metadata, own: Formats) -> None:
        self._metadata = metadata
        self._own = own
        self._open = asyncio.Event()

    async def check(self) -> None:
        """Open. Invalid: something is newer than what this version reads, named in one line.

        What comes later ends no service that runs: it stops trims and deletions where it matters.
        """
        await self._metadata.log.wait_ready()
        ledger = self._metadata.manager.newer_format
        why = newer_format(self._own, self._metadata.settings.view, ledger)
        if why is not None:
            raise Invalid(why)
        self._open.set()

    def after(self, run: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """`run`, begun once the gate is open."""

        async def waiting() -> None:
            await self._open.wait()
            await run()

        return waiting
