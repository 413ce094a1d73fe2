"""Who says what a principal may do: the principals file, or the ACLs of the brokers.

The brokers are asked with DescribeAcls by the service's own client, at most once in 30 s for each
principal. Where they do not answer, nobody is allowed anything that is not known. They do not name
their super users, so a super user needs ACLs of its own here.
"""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kip405.acls import AclEntry, MissingAcls
from kip405.errors import RemoteStorageError, Unavailable
from rlm.api.calls import Caller
from rlm.api.principals import KAFKA_USER, PrincipalSource
from rlm.broker.acls import NoAuthorizer
from rlm.clock import Clock
from rlm.plans.api_rights import AclRights, Need, TopicRights

ACLS_VALID_MS = 30_000
FAILURE_VALID_MS = 2_000
"""How long calls are refused after the brokers did not answer, so that calls do not all wait."""
CACHED_PRINCIPALS_MAX = 1_000

AskAcls = Callable[[str], Awaitable[tuple[AclEntry, ...]]]
"""All ACLs of a principal and of `User:*` (rlm.broker.acls)."""


class CallerRights(Protocol):
    """What one caller may do now."""

    def lacks(self, needs: Iterable[Need]) -> tuple[Need, ...]:
        """Those of the needs that it may not."""
        ...


class Authorizer(Protocol):
    """The authority; `words` name it in the refusal of a call."""

    words: str

    async def rights_of(self, caller: Caller) -> CallerRights:
        """Unavailable: that cannot be known now."""
        ...


class FileAuthorizer:
    """By the principals file, as it is now: a principal that was taken out has no rights."""

    words = "api.principals.file gives it that right to no topic of this name"

    def __init__(self, principals: PrincipalSource) -> None:
        self._principals = principals

    async def rights_of(self, caller: Caller) -> CallerRights:
        """See Authorizer."""
        return self._principals().rights.get(caller.principal, _NO_RIGHTS)


_NO_RIGHTS = TopicRights()


@dataclass(slots=True)
class _Known:
    """What the brokers last said of one principal, or why nothing is known."""

    at_ms: int | None = None
    entries: tuple[AclEntry, ...] = ()
    failure: RemoteStorageError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class KafkaAuthorizer:
    """By the brokers' ACLs, which may be 30 s old."""

    words = (
        "no ACL of the brokers allows it, or one denies it (super users of the brokers are not "
        "known here, and need ACLs)"
    )

    def __init__(self, ask: AskAcls, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def rights_of(self, caller: Caller) -> CallerRights:
        """See Authorizer. Callers of one principal ask once together."""
        principal = caller.principal
        if not principal.startswith(KAFKA_USER):
            principal = f"{KAFKA_USER}{principal}"
        known = self._entry(principal)
        if not self._is_valid(known):
            async with known.lock:
                if not self._is_valid(known):
                    await self._renew(principal, known)
        if known.failure is not None:
            raise Unavailable(str(known.failure)) from known.failure
        host = host_of_acls(caller.address)
        return AclRights(principal=principal, host=host, entries=known.entries)

    def _entry(self, principal: str) -> _Known:
        known = self._known.setdefault(principal, _Known())
        self._known.move_to_end(principal)
        if len(self._known) > CACHED_PRINCIPALS_MAX:
            self._known.popitem(last=False)
        return known

    def _is_valid(self, known: _Known) -> bool:
        if known.at_ms is None:
            return False
        limit_ms = ACLS_VALID_MS if known.failure is None else FAILURE_VALID_MS
        return self._clock.monotonic_ms() - known.at_ms < limit_ms

    async def _renew(self, principal: str, known: _Known) -> None:
        asked_ms = self._clock.monotonic_ms()
        try:
            known.entries = await self._ask(principal)
        except RemoteStorageError as error:
            known.entries, known.failure = (), _explained(error)
            known.at_ms = self._clock.monotonic_ms()
        else:
            known.failure, known.at_ms = None, asked_ms


def host_of_acls(address: str) -> str:
    """The address as brokers compare it with the hosts of ACLs: IPv6 is written without `::`, by
    Java's Inet6Address.getHostAddress.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return ":".join(f"{int(part, 16):x}" for part in found.exploded.split(":"))


def _explained(error: RemoteStorageError) -> RemoteStorageError:
    """Says what api.authorization=kafka needs."""
    if isinstance(error, NoAuthorizer):
        return Unavailable(f"api.authorization is kafka, but {error}: nobody is let in by that")
    if isinstance(error, MissingAcls):
        return Unavailable(f"api.authorization is kafka, but this service may not ask: {error}")
    return Unavailable(f"what the brokers allow is not known now: {error}")
