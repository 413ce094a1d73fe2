"""Calls of a plugin: a principal is named, and no secret gets into what a caller is told."""

from collections.abc import Sequence

from kip405.errors import RemoteStorageError, error_of_kind
from rsm_plugins.answering import Answered, Context, principal_of
from rsm_plugins.masking import masked
from rsm_plugins.status import status_of_error


def without_secrets(error: RemoteStorageError, secrets: Sequence[str]) -> RemoteStorageError:
    """The error itself where it tells none, else one of its kind with the secrets masked."""
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
            status_of=lambda error: status_of_error(without_secrets(error, secrets)),
        )
