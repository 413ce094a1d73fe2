"""What every call of the server has in common: a principal is named, errors become statuses, bugs
are logged.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeAlias

import grpc
import structlog

from kip405.errors import Internal, RemoteStorageError, error_of_kind
from rsm_plugins.masking import masked
from rsm_plugins.status import Unauthenticated, status_of_error

PRINCIPAL_KEY = "rlm-principal"
PRINCIPAL_MAX = 256

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
log = structlog.get_logger(__name__)


def principal_of(context: Context) -> str:
    """Who asks; Unauthenticated where the call does not say."""
    for key, value in context.invocation_metadata() or ():
        if key == PRINCIPAL_KEY and isinstance(value, str) and 0 < len(value) <= PRINCIPAL_MAX:
            return value
    raise Unauthenticated(
        f"the call names no principal: send the metadata {PRINCIPAL_KEY!r} with every call"
    )


def without_secrets(error: RemoteStorageError, secrets: Sequence[str]) -> RemoteStorageError:
    """The error itself where it tells none, else one of its kind with the secrets masked."""
    what = str(error)
    safe = masked(what, secrets)
    return error if safe == what else error_of_kind(error.kind, safe)


class Answering:
    """`async with Answering(context, "stat"):` around the body of a call; none of the secrets gets
    into what the caller is told.
    """

    def __init__(self, context: Context, operation: str, secrets: Sequence[str] = ()) -> None:
        self._context = context
        self._operation = operation
        self._secrets = secrets

    async def __aenter__(self) -> None:
        try:
            principal_of(self._context)
        except Unauthenticated as error:
            await self._abort(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, RemoteStorageError):
            log.info(
                "call_failed", operation=self._operation, kind=error.kind.name, what=str(error)
            )
            await self._abort(error)
        elif isinstance(error, Exception) and not isinstance(error, grpc.aio.AbortError):
            log.error("call_crashed", operation=self._operation, exc_info=error)
            await self._abort(Internal(f"{self._operation}: {type(error).__name__}: {error}"))

    async def _abort(self, error: RemoteStorageError) -> None:
        code, what, trailing = status_of_error(without_secrets(error, self._secrets))
        await self._context.abort(code, what, trailing)
