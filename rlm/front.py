"""Temporary front for the first smoke runs; replaced when API lands."""

from typing import Any

from aiohttp import web

from rlm.proxy.settings import NoMetrics


class Front:
    def __init__(self, parts: Any, pools: Any) -> None:
        self.parts = parts
        self.proxy_metrics = NoMetrics()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()

        async def healthz(_: web.Request) -> web.Response:
            p = self.parts
            return web.json_response(
                {
                    "ready": p.tier.ready(),
                    "ledger": p.facts.manager.problem,
                    "settings": p.facts.settings.problem,
                    "store": p.store_link.problem,
                },
                status=200 if p.tier.ready() else 503,
            )

        app.router.add_get("/healthz", healthz)
        app.router.add_get("/metrics", healthz)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, self.parts.config.http_listen.host, self.parts.config.http_listen.port
        )
        await site.start()

    async def close(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def keep_topics(self) -> None:
        while True:
            await self.parts.clock.sleep_ms(10_000)

    def work_began(self, work: Any, store_id: Any) -> None:
        pass
