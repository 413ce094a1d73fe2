"""What every call has in common: a principal is named, a token shown if one is set, errors become
statuses, bugs are logged.
"""

import hmac
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import grpc
import structlog

from kip405.errors import Internal, RemoteStorageError
from rlm.api.status import Unauthenticated, status_of_error

PRINCIPAL_KEY = "rlm-principal"
FORWARDED_KEY = "rlm-forwarded-by"
TOKEN_KEY = "authorization"  # noqa: S105 - the name of a header
PRINCIPAL_MAX = 256

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks; `forwarded_by` is the service that passed the call on, empty for a first hand."""

    principal: str
    forwarded_by: str = ""

    @property
    def is_forwarded(self) -> bool:
        return bool(self.forwarded_by)


class Gate:
    """Lets calls in. `token` None = none is asked for."""

    def __init__(self, token: str | None = None) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()

    def admit(self, context: Context) -> Caller:
        """Unauthenticated without principal or with a wrong token."""
        metadata = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        if self._expected is not None:
            shown = metadata.get(TOKEN_KEY, "").encode()
            if not hmac.compare_digest(shown, self._expected):
                raise Unauthenticated("the call shows no valid token (authorization: Bearer ...)")
        principal = metadata.get(PRINCIPAL_KEY, "")
        if not 0 < len(principal) <= PRINCIPAL_MAX:
            raise Unauthenticated(
                f"the call names no principal: send the metadata {PRINCIPAL_KEY!r} with every call"
            )
        return Caller(principal=principal, forwarded_by=metadata.get(FORWARDED_KEY, ""))


def call_metadata(
    principal: str, token: str | None, forwarded_by: str = ""
) -> tuple[tuple[str, str], ...]:
    """Metadata that a client sends with a call."""
    rows = [(PRINCIPAL_KEY, principal)]
    if token is not None:
        rows.append((TOKEN_KEY, f"Bearer {token}"))
    if forwarded_by:
        rows.append((FORWARDED_KEY, forwarded_by))
    return tuple(rows)


class Answering:
    """`async with Answering(gate, context, "fetch") as caller:` around the body of a call."""

    def __init__(self, gate: Gate, context: Context, operation: str) -> None:
        self._gate = gate
        self._context = context
        self._operation = operation

    async def __aenter__(self) -> Caller:
        try:
            return self._gate.admit(self._context)
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
        code, what, trailing = status_of_error(error)
        await self._context.abort(code, what, trailing)
