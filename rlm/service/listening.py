"""The HTTP and gRPC listeners of a service in every role, as configured.

Must not know what their clients request.
"""

from collections.abc import Callable

from rlm.api.server import ApiServer
from rlm.config import CommonConfig
from rlm.service.http_server import HealthState, HttpServer
from rlm.v1 import admin_pb2_grpc, fetch_pb2_grpc


class Listening:
    """`start` listens, `close` stops listening; the caller closes the services behind it."""

    def __init__(
        self,
        config: CommonConfig,
        *,
        admin: admin_pb2_grpc.AdminServiceServicer | None,
        fetch: fetch_pb2_grpc.FetchServiceServicer,
        health: Callable[[], HealthState],
        metrics: Callable[[], bytes],
    ) -> None:
        self._config = config
        self._admin = admin
        self._fetch = fetch
        self._http = HttpServer(
            host=config.http_listen.host,
            port=config.http_listen.port,
            health=health,
            metrics=metrics,
        )
        self._api: ApiServer | None = None

    async def start(self) -> None:
        """Invalid: a port is taken, an address may not be used, or a TLS file is not usable."""
        config = self._config
        self._api = ApiServer(
            admin=self._admin,
            fetch=self._fetch,
            listen=str(config.grpc_listen),
            tls=config.grpc_tls,
            asks_tokens=config.api_token_file is not None,
            allow_insecure=config.allow_insecure,
        )
        await self._http.start()
        await self._api.start()

    async def close(self) -> None:
        """Closes the API first."""
        if self._api is not None:
            await self._api.stop()
        await self._http.stop()
