"""Errors of the remote tier as aiokafka's users know errors: each is a KafkaError."""

from typing import Final

from aiokafka import errors

from kip405.errors import ErrorKind
from tiered_reads.errors import ConnectorError, ServiceError

_PASSING: Final = (ErrorKind.UNAVAILABLE.name, ErrorKind.BUSY.name, ErrorKind.FENCED.name)


class RemoteTierError(errors.KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """The remote tier cannot be read: stored bytes are damaged, a right is missing, or a service
    refuses for good. The same read is tried again by the next call.
    """


class RemoteTierUnavailable(RemoteTierError):
    """No service answers now, or nothing is remote yet; aiokafka asks again within its limits."""

    retriable = True


class RemoteTierTimeout(RemoteTierUnavailable):
    """All reads of a partition have failed for `remote_retry_timeout_ms`. No record was passed, and
    they are tried again by the next call.
    """


def offsets_error(error: ServiceError) -> RemoteTierError:
    """What a question about offsets raises."""
    text = str(error)
    return RemoteTierUnavailable(text) if is_passing(error) else RemoteTierError(text)


def is_passing(error: Exception) -> bool:
    """Whether the same read may work later; other errors are the user's."""
    if isinstance(error, ServiceError):
        return error.kind in _PASSING
    if isinstance(error, RemoteTierError):
        return isinstance(error, RemoteTierUnavailable)
    # A plain ConnectorError: for a while no service could say which tier has the offset.
    return type(error) is ConnectorError or isinstance(error, errors.KafkaError | OSError)
