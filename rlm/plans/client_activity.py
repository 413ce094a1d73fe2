"""Who reads through the proxies of a service: clients, their groups, and what each tier gave them.
Pure.

A row is a client as far as the proxy can tell clients apart: the principal that was proved, the
client id that it names, and its address. A consumer's groups are known by its requests to a
coordinator, which come over other connections of the same client, perhaps to another service. The
number of rows and what each holds are bounded: any client may call itself what it likes (G10).

A proxy worker keeps such a table and sends what has changed to the core, whose own table adds it
up. Which group or client entered remote data is decided there, once for the whole service.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_CLIENTS = 10_000
_MOST_ENTERED = 10_000
_MOST_NAMES = 100
_MOST_NAMES_CHARACTERS = 2_500  # of a row's groups, and of its software
_MOST_TOPICS = 1_000
_OTHER_TOPICS = ""


class ClientName(NamedTuple):
    """Empty = not known."""

    principal: str
    client_id: str
    address: str


OTHER_CLIENTS = ClientName("", "", "")
"""All that there is no more room for."""


@dataclass(slots=True)
class TierBytes:
    """Record bytes in answers of Fetch."""

    remote: int = 0
    local: int = 0


@dataclass(slots=True)
class ClientRow:
    """What is counted of one client since the start, or since it was last taken."""

    name: ClientName
    connections: int = 0
    software: dict[str, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    topics: dict[str, TierBytes] = field(default_factory=dict)
    throttled_ms: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to say of it once its connections have ended."""
        return not (self.groups or self.topics or self.throttled_ms)

    def topic(self, name: str) -> TierBytes:
        """What was read of a topic."""
        found = self.topics.get(name)
        if found is None:
            if len(self.topics) >= _MOST_TOPICS:
                name = _OTHER_TOPICS
            found = self.topics.setdefault(name, TierBytes())
        return found


class Entered(NamedTuple):
    """A group, or a client that is in none, got remote data for the first time."""

    kind: str
    name: str
    client: ClientName
    topic: str


OnEntered = Callable[[Entered], None]


class ClientTable:
    """Rows by client; `on_entered` is called once for each group or client id."""

    def __init__(
        self,
        on_entered: OnEntered | None = None,
        on_joined: Callable[[], None] | None = None,
        most: int = MOST_CLIENTS,
        *,
        is_taken: bool = False,
    ) -> None:
        """`on_joined` is called when a group of a client is new, so that it is known before what
        the client reads. `is_taken`: somebody calls `taken`; otherwise no change is remembered.
        """
        self._on_entered = on_entered
        self._on_joined = on_joined
        self._most = most
        self._is_taken = is_taken
        self._rows: OrderedDict[ClientName, ClientRow] = OrderedDict()
        self._changed: dict[ClientName, None] = {}
        self._entered: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._of_sources: dict[Hashable, dict[ClientName, int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> tuple[ClientRow, ...]:
        """Everything that is known; not to be changed."""
        return tuple(self._rows.values())

    # What a proxy counts.

    def connected(self, name: ClientName, count: int = 1) -> None:
        """Connections of the client were made, or with a negative count ended."""
        if count < 0 and name not in self._rows:
            name = OTHER_CLIENTS
        row = self._row(name)
        row.connections = max(0, row.connections + count)
        if row.connections <= 0 and row.is_empty:
            self._rows.pop(row.name, None)

    def runs(self, name: ClientName, software: str) -> None:
        """What the client says that it is."""
        _add(self._row(name).software, software)

    def joined(self, name: ClientName, group: str) -> None:
        """The client is in a group."""
        row = self._row(name)
        known = len(row.groups)
        _add(row.groups, group)
        if len(row.groups) > known and self._on_joined is not None:
            self._on_joined()
        if any(read.remote for read in row.topics.values()):
            self._enter("group", group, row.name, "")

    def read(self, name: ClientName, topic: str, remote: int, local: int) -> None:
        """Record bytes of a topic are in an answer; a topic without a name is empty."""
        row = self._row(name)
        given = row.topic(topic)
        given.remote += remote
        given.local += local
        if not remote or self._on_entered is None:
            return
        for group in row.groups:
            self._enter("group", group, row.name, topic)
        if not row.groups:
            self._enter("client", row.name.client_id, row.name, topic)

    def throttled(self, name: ClientName, duration_ms: int) -> None:
        """Remote reads of the client were delayed."""
        self._row(name).throttled_ms += duration_ms

    def _row(self, name: ClientName) -> ClientRow:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= self._most and not self._forget_one():
                name = OTHER_CLIENTS
            row = self._rows.setdefault(name, ClientRow(name))
        self._rows.move_to_end(row.name)
        if self._is_taken:
            self._changed[row.name] = None
            if len(self._changed) > 2 * self._most:
                self.forget_gone()
        return row

    def _forget_one(self) -> bool:
        """Drop the client without a connection that has done nothing for longest."""
        idle = next((name for name, row in self._rows.items() if row.connections <= 0), None)
        if idle is None:
            return False
        del self._rows[idle]
        self._changed.pop(idle, None)
        return True

    def _enter(self, kind: str, name: str, client: ClientName, topic: str) -> None:
        if self._on_entered is None or (kind, name) in self._entered:
            return
        self._entered[kind, name] = None
        if len(self._entered) > _MOST_ENTERED:
            self._entered.popitem(last=False)
        self._on_entered(Entered(kind, name, client, topic))

    # Between processes.

    def taken(self) -> tuple[ClientRow, ...]:
        """What has changed since the last call, with bytes and delays of since then alone. Counting
        of these begins again; connections and names are those of now.
        """
        found = []
        for name in self._changed:
            row = self._rows.get(name)
            if row is None:
                found.append(ClientRow(name))
                continue
            found.append(
                ClientRow(
                    name,
                    connections=row.connections,
                    software=dict(row.software),
                    groups=dict(row.groups),
                    topics=row.topics,
                    throttled_ms=row.throttled_ms,
                )
            )
            row.topics, row.throttled_ms = {}, 0
            if row.connections <= 0:  # nothing more is to be said of it
                del self._rows[name]
        self._changed.clear()
        return tuple(found)

    def forget_gone(self) -> None:
        """Rows that are gone are not in the next `taken`: a new core has not heard of them."""
        self._changed = {name: None for name in self._changed if name in self._rows}

    def show_all(self) -> None:
        """A new core knows nothing: the next `taken` has every row."""
        self._changed.update(dict.fromkeys(self._rows))

    def merge(self, source: Hashable, rows: Iterable[ClientRow]) -> None:
        """Add what a worker has taken."""
        known = self._of_sources.setdefault(source, {})
        for one in rows:
            for software in one.software:
                self.runs(one.name, software)
            for group in one.groups:
                self.joined(one.name, group)
            for topic, given in one.topics.items():
                self.read(one.name, topic, given.remote, given.local)
            if one.throttled_ms:
                self.throttled(one.name, one.throttled_ms)
            more = one.connections - known.get(one.name, 0)
            if more:
                self.connected(one.name, more)
            known[one.name] = one.connections
            if one.connections <= 0:
                del known[one.name]

    def left(self, source: Hashable) -> None:
        """A worker is gone, with its connections."""
        for name, count in self._of_sources.pop(source, {}).items():
            self.connected(name, -count)


def _add(names: dict[str, None], name: str) -> None:
    if not name or name in names or len(names) >= _MOST_NAMES:
        return
    if sum(map(len, names)) + len(name) <= _MOST_NAMES_CHARACTERS:
        names[name] = None
