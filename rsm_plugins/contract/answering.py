"""What all served gRPC calls share: the caller's identity, statuses of errors, logs of bugs.

A call of a plugin must name a principal, and no secret may reach the caller.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

import grpc
import structlog

from kip405.errors import Internal, RemoteStorageError, error_of_kind
from kip405.settings import masked
from rsm_plugins.contract.principals import PRINCIPAL_KEY, PRINCIPAL_MAX
from rsm_plugins.contract.status import Unauthenticated, status_of_error

C = TypeVar("C")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
log = structlog.get_logger(__name__)


def principal_of(context: Context) -> str:
    """The name of the caller; Unauthenticated if the call has none."""
    for key, value in context.invocation_metadata() or ():
        if key == PRINCIPAL_KEY and isinstance(value, str) and 0 < len(value) <= PRINCIPAL_MAX:
            return value
    raise Unauthenticated(
        f"the call names no principal: send the metadata {PRINCIPAL_KEY!r} with every call"
    )


class Answered(Generic[C]):
    """`async with` around the body of a call; returns what `admit` says of the caller.

    `admit` raises Unauthenticated for a call that is not admitted. Every other error of this
    product becomes the status for the caller, with the secrets masked.
    """

    def __init__(
        self,
        context: Context,
        operation: str,
        *,
        admit: Callable[[Context], C],
        secrets: Sequence[str] = (),
    ) -> None:
        self._context = context
        self._operation = operation
        self._admit = admit
        self._secrets = secrets

    async def __aenter__(self) -> C:
        try:
            return self._admit(self._context)
        except Unauthenticated as error:
            await self._abort(error)
            raise  # not reached: abort raises

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


def without_secrets(error: RemoteStorageError, secrets: Sequence[str]) -> RemoteStorageError:
    """The error itself if it contains no secret, else one of its kind with the secrets masked."""
    what = str(error)
    safe = masked(what, secrets)
    return error if safe == what else error_of_kind(error.kind, safe)


class Answering(Answered[str]):
    """`async with Answering(context, "stat"):` around the body of a call."""

    def __init__(self, context: Context, operation: str, secrets: Sequence[str] = ()) -> None:
        super().__init__(
            context,
            operation,
            admit=principal_of,
            secrets=secrets,
        )
