"""How many connections each address and each principal has, of one process. Pure.

An address is known at once, a principal when the broker has let it in, or when a certificate has
proved it that is the client's identity. Many users of SASL may share a certificate, so its subject
is a name from the handshake on, and counts once the broker has let the client in without SASL.
Names that are not proved are not counted, because anybody could use up the connections of another.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlm.proxy.session import SessionError


class Shares:
    """Connections by name, at most `most` of each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: Counter[str] = Counter()

    def enter(self, name: str) -> bool:
        """Count one more; False: it has as many as it may."""
        if self._counts[name] >= self.most:
            return False
        self._counts[name] += 1
        return True

    def leave(self, name: str) -> None:
        """Count one less."""
        self._counts[name] -= 1
        if self._counts[name] <= 0:
            del self._counts[name]

    def __len__(self) -> int:
        return len(self._counts)


@dataclass(slots=True)
class Identity:
    """Who one connection is. `subject`: of its certificate, as RFC 2253 has it. `principal` is whom
    the broker has let in, and before that the subject.
    """

    address: str
    subject: str | None = None
    principal: str | None = None
    is_by_sasl: bool = False
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class Identities:
    """All connections. What was counted for one ends with `leave`."""

    addresses: Shares
    principals: Shares
    _open: dict[int, Identity] = field(default_factory=dict)

    def enter(self, address: str) -> Identity:
        """SessionError: there are as many connections from there as may be."""
        if not self.addresses.enter(address):
            raise SessionError(
                "address_connections",
                f"{address} has {self.addresses.most} connections "
                "(proxy.max.connections.per.address)",
            )
        made = Identity(address)
        self._open[id(made)] = made
        return made

    def prove(self, identity: Identity, principal: str, *, by_sasl: bool) -> None:
        """Who it is was proved; the first user of SASL stays. SessionError: as many connections
        have the name as may. A connection that proves its name in another way too counts once.
        """
        if identity.is_by_sasl or id(identity) not in self._open:
            return
        if identity.is_counted and identity.principal == principal:
            identity.is_by_sasl = by_sasl
            return
        if not self.principals.enter(principal):
            raise SessionError(
                "principal_connections",
                f"{principal} has {self.principals.most} connections "
                "(proxy.max.connections.per.principal)",
            )
        if identity.is_counted and identity.principal is not None:
            self.principals.leave(identity.principal)
        identity.principal, identity.is_by_sasl, identity.is_counted = principal, by_sasl, True

    def __iter__(self) -> Iterator[Identity]:
        return iter(tuple(self._open.values()))

    def leave(self, identity: Identity) -> None:
        """The connection has ended; calling it again does nothing."""
        if self._open.pop(id(identity), None) is None:
            return
        self.addresses.leave(identity.address)
        if identity.is_counted and identity.principal is not None:
            self.principals.leave(identity.principal)
