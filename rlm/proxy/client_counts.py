"""Counts what one connection's client does, under the name that is known of it by then. Pure.

The name grows: an address at once, a client id with the first request that has one, a principal
once it is proved. The connection then counts for the new name. A stranger is nobody: of what it
says, only the newest is kept, and it counts once the broker has let the connection in.
rlm/plans/client_activity.py says what a name is, and adds connections up.
"""

from collections.abc import Callable

from rlm.plans.client_activity import ClientName, ClientTable
from rlm.proxy.introductions import Introduction, shown
from rlm.remote_log.tier import TierPartition, TopicRef

View = Callable[[TopicRef, int], TierPartition | None]


class ClientCounts:
    """The client of one connection; `view`: of a tiered partition, for the name of its topic."""

    def __init__(self, table: ClientTable, address: str, view: View) -> None:
        self._table = table
        self._view = view
        self._name = ClientName("", "", address)
        self._is_admitted = self._is_counted = False
        self._software = self._group = ""

    def introduced(self, said: Introduction) -> None:
        """What a request says that passes."""
        self._software = said.software or self._software
        self._group = said.group or self._group
        self._be(self._name._replace(client_id=said.client_id))
        if not self._is_admitted:
            return
        if said.software:
            self._table.runs(self._name, said.software)
        if said.group:
            self._table.joined(self._name, said.group)

    def admitted(self) -> None:
        """The broker has answered what it answers to nobody that it has not let in."""
        if self._is_admitted:
            return
        self._is_admitted = True
        self._be(self._name)
        if self._group:
            self._table.joined(self._name, self._group)

    def known_as(self, principal: str) -> None:
        """The client's principal was proved."""
        self._be(self._name._replace(principal=principal))

    def named(self, client_id: str | None) -> None:
        """A Fetch has this client id."""
        if client_id != self._name.client_id:
            self._be(self._name._replace(client_id=shown(client_id)))

    def read(
        self, topic: str | bytes, ref: TopicRef, partition: int, remote: int, local: int
    ) -> None:
        """Record bytes of a partition are in an answer. `topic`: as the client named it."""
        if not remote and not local:
            return
        self.admitted()
        name = topic if isinstance(topic, str) else self._name_of(ref, partition)
        self._table.read(self._name, name, remote, local)

    def throttled(self, duration_ms: int) -> None:
        """Remote reads were delayed."""
        self._table.throttled(self._name, duration_ms)

    def ended(self) -> None:
        """The connection has ended."""
        if self._is_counted:
            self._is_counted = False
            self._table.connected(self._name, -1)

    def _name_of(self, ref: TopicRef, partition: int) -> str:
        """Of a topic that is named by its id: empty, unless it is tiered."""
        view = self._view(ref, partition)
        return "" if view is None else view.topic

    def _be(self, name: ClientName) -> None:
        if name == self._name and self._is_counted:
            return
        before, self._name = self._name, name
        if not self._is_admitted:
            return
        if self._software:
            self._table.runs(name, self._software)
        self._table.connected(name)
        if self._is_counted:
            self._table.connected(before, -1)
        self._is_counted = True
