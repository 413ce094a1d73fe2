"""Which topics are the service's own, and what clients may not do with them. Pure.

Whoever writes the ledger or the settings commands the service, so the proxy refuses every request
that would change one of these topics, whatever the broker's ACLs say. Clients name topics by name
or, in newer versions of Produce and DeleteTopics, by id. The ids are known once this service has
seen its topics; until then the versions that have ids are not offered. An earlier process may have
seen other ids: a topic that was recreated since has a new one. So what it has left in the state dir
only lets clients go on that remember those versions (H24). Without that no such request can pass.
Reading is the broker's to allow. This module must not know who a client is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from kafka_protocol.apis import DELETE_TOPICS, PRODUCE
from kafka_protocol.primitives import Buffer

PREFIX = "__rlm_"
"""All of the service's own topics begin so, and no others should."""
REFUSED = "own_topic"
"""How an answer that refuses such a topic is counted."""
_PREFIX_BYTES = PREFIX.encode()
_HIGHEST_WITHOUT_IDS = MappingProxyType({PRODUCE.key: 12, DELETE_TOPICS.key: 5})
_ID_BYTES = 16

OwnTopicIds = Callable[[], frozenset[bytes]]
"""The ids of the service's own topics, and of one that was recreated since the service began to use
them; empty = not known yet.
"""


def unknown_ids() -> frozenset[bytes]:
    """An OwnTopicIds of a service that has not seen its topics."""
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopics:
    """Tells topics of the service from all others. `remembered`: ids that an earlier process has
    seen, which count until there are `ids`.
    """

    ids: OwnTopicIds
    remembered: frozenset[bytes] = frozenset()

    def highest(self, api_key: int) -> int | None:
        """A `Highest` of kafka_protocol.api_versions: what is offered."""
        return None if self.ids() else _HIGHEST_WITHOUT_IDS.get(api_key)

    def highest_taken(self, api_key: int) -> int | None:
        """Likewise, of requests: more than is offered, for clients that do not ask again."""
        return None if self._known() else _HIGHEST_WITHOUT_IDS.get(api_key)

    def _known(self) -> frozenset[bytes]:
        return self.ids() or self.remembered

    def has(self, name: str | None, topic_id: bytes | None) -> bool:
        """Whether the topic with this name or id is ours."""
        is_named = name is not None and name.startswith(PREFIX)
        return is_named or (topic_id is not None and topic_id in self._known())

    def has_named(self, topic: Buffer) -> bool:
        """As `has`, of bytes that are a name up to Produce v12, and the id from v13 on. A name that
        has the bytes of an id is refused too.
        """
        if bytes(topic[: len(_PREFIX_BYTES)]) == _PREFIX_BYTES:
            return True
        return len(topic) == _ID_BYTES and bytes(topic) in self._known()

    def may_be_in(self, frame: bytes) -> bool:
        """Whether any bytes of a whole request look like one of our topics. False is certain."""
        return _PREFIX_BYTES in frame or any(one in frame for one in self._known())
