"""What one client's connection is made of: its view of the tier, its login, the handlers of its
requests, and what is counted of it.

This is composition only: the server accepts and ends connections, handlers answer requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from kafka_protocol.api_versions import refuse_api_versions
from kafka_protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    DELETE_RECORDS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    WRITE_TXN_MARKERS,
)
from kafka_protocol.primitives import Buffer
from kafka_protocol.produce import LogStartLookup
from rlm.plans.client_activity import ClientTable
from rlm.proxy.begun import in_task
from rlm.proxy.client_counts import ClientCounts
from rlm.proxy.client_login import ClientLogin, refuse_sasl
from rlm.proxy.client_tokens import ClientTokens
from rlm.proxy.connection import Connection, Handle
from rlm.proxy.delete_records import DeleteRecordsHandler
from rlm.proxy.fetch import FetchDependencies, FetchHandler
from rlm.proxy.fetch_plan import topic_ref
from rlm.proxy.identities import Identities, Identity
from rlm.proxy.introductions import Introduction
from rlm.proxy.position_handlers import PositionHandler
from rlm.proxy.sasl import SASL_APIS, SaslHandler
from rlm.proxy.session import Taken
from rlm.proxy.shared import Shared
from rlm.proxy.topic_changes import CHANGING_APIS, TopicChangesHandler
from rlm.remote_log.tier import Deletions, Tier, has_remote
from rlm.remote_log.visible import ClientView, VisibleTiers

Accept = Callable[[Identity, ClientCounts, Callable[[], None], Connection], bool]
"""Whether the server takes the connection; with what counts it by its certificate."""


class ClientConnections:
    """Makes the connections of a server, each with handlers of its own.

    `fetches` and `shared`: of all connections. `tokens`: a client with a certificate is the
    principal of that to the broker, too.
    """

    def __init__(
        self,
        tier: Tier,
        deletions: Deletions,
        fetches: FetchDependencies,
        shared: Shared,
        identities: Identities,
        clients: ClientTable,
        tokens: ClientTokens | None,
    ) -> None:
        self._tier = tier
        self._visible = VisibleTiers(tier, shared.settings.history)
        self._deletions = deletions
        self._fetches = fetches
        self._shared = shared
        self._settings, self._metrics = shared.settings, shared.metrics
        self._clock = fetches.clock
        self._identities = identities
        self._clients = clients
        self._tokens = tokens

    def make(self, identity: Identity, accept: Accept) -> Connection:
        """The connection of a client; `accept` is called when its socket is connected to it."""
        view = self._visible.client()
        counts = ClientCounts(self._clients, identity.address, self._tier.partition)
        fetches = FetchHandler(self._fetches, view, counts)

        def known(principal: str) -> None:
            for one in (view, fetches, counts):
                one.known_as(principal)

        def proved(principal: str) -> None:
            self._identities.prove(identity, principal, by_sasl=True)
            counts.admitted()
            known(identity.principal or principal)

        if identity.principal is not None:
            known(identity.principal)
        login = self._login(identity, proved)
        claim = self._settings.sasl_oauthbearer_sub_claim_name
        watch = SaslHandler(proved, self._clock, sub_claim_name=claim)
        sasl: Handle = watch.handle if login is None else _refuse_sasl
        fetches.session_left_ms = (login or watch).session_left_ms
        handlers = {
            FETCH.key: fetches.handle,
            **dict.fromkeys(SASL_APIS, sasl),
            **self._other_handlers(view),
        }

        def count_by_certificate() -> None:
            name = identity.principal
            if name is not None and not watch.has_let_in:
                self._identities.prove(identity, name, by_sasl=False)

        def admitted() -> None:
            counts.admitted()
            count_by_certificate()

        accepted = partial(accept, identity, counts, count_by_certificate)
        introduced = _Introduced(view, counts, admitted)
        return Connection(self._shared_with(view), handlers, accepted, introduced, login)

    def _other_handlers(self, view: ClientView) -> dict[int, Handle]:
        """Of requests whose answers do not depend on who the client is."""
        own_topics = self._shared.own_topics
        positions = PositionHandler(self._settings, view, self._clock, self._metrics)
        deletes = DeleteRecordsHandler(
            self._settings, self._tier, self._deletions, own_topics, self._clock, self._metrics
        )
        changes = TopicChangesHandler(own_topics, self._metrics)
        return {
            LIST_OFFSETS.key: _InTask(positions.list_offsets),
            OFFSET_FOR_LEADER_EPOCH.key: _InTask(positions.offset_for_leader_epoch),
            DELETE_RECORDS.key: _InTask(deletes.handle),
            API_VERSIONS.key: _refuse_newer_api_versions,
            **dict.fromkeys(CHANGING_APIS, changes.handle),
            ADD_PARTITIONS_TO_TXN.key: changes.add_partitions,
            WRITE_TXN_MARKERS.key: changes.write_markers,
        }

    def _login(self, identity: Identity, known: Callable[[str], None]) -> ClientLogin | None:
        if self._tokens is None or identity.subject is None:
            return None
        return ClientLogin(
            self._tokens, subject=identity.subject, address=identity.address, known=known
        )

    def _shared_with(self, view: ClientView) -> Shared:
        """With the log start that Produce answers show this client (H22)."""
        if self._settings.history.is_full:
            return self._shared
        return replace(self._shared, produce_log_start=produce_log_start(lambda: view.last_tier))


@dataclass(frozen=True, slots=True)
class _Introduced:
    """Receives what one client's requests say that pass; see `rlm.proxy.introductions`."""

    view: ClientView
    counts: ClientCounts
    on_admitted: Callable[[], None]

    def introduced(self, said: Introduction) -> None:
        self.view.named(said.client_id or None)
        self.counts.introduced(said)

    def admitted(self) -> None:
        self.on_admitted()


def produce_log_start(tier: Callable[[], Tier]) -> LogStartLookup:
    """The remote log start that a Produce answer shows (H22); never waits (G6)."""

    def lookup(name: str | None, topic_id: bytes | None, partition: int) -> int | None:
        view = tier().partition(topic_ref(name, topic_id), partition)
        if view is None or not has_remote(view):
            return None
        return view.remote_log_start_offset

    return lookup


@dataclass(frozen=True, slots=True)
class _InTask:
    """The same handler, in a task from its beginning."""

    handle: Handle

    async def __call__(self, taken: Taken, connection: Connection) -> list[Buffer] | None:
        await in_task()
        return await self.handle(taken, connection)


async def _refuse_sasl(taken: Taken, connection: Connection) -> list[Buffer]:
    return await refuse_sasl(taken, connection.settled)


async def _refuse_newer_api_versions(taken: Taken, connection: Connection) -> list[Buffer]:
    """ApiVersions of a version that the broker's listener may not know: the client asks again."""
    await connection.settled()
    return [refuse_api_versions(taken.correlation_id)]
