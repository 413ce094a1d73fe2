"""Errors of the remote tier as aiokafka's users know errors: each is a KafkaError."""

from aiokafka import errors

from tiered_reads.errors import ServiceError


class RemoteTierError(errors.KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """The remote tier cannot be read: stored bytes are damaged, a right is missing, or a service
    refuses for good. The same read is tried again by the next call.
    """


class RemoteTierUnavailable(RemoteTierError):
    """No service answers now, or nothing is remote yet; aiokafka asks again within its limits."""

    retriable = True


def offsets_error(error: ServiceError, *, is_passing: bool) -> RemoteTierError:
    """What a question about offsets raises."""
    return RemoteTierUnavailable(str(error)) if is_passing else RemoteTierError(str(error))
