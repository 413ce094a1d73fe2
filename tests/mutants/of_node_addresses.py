"""Planted bugs where the proxy rewrites addresses: who is named, and what is changed in answers."""

from tests.mutants.edits import Edit, Target

WIRE = Target("kafka_protocol/node_addresses.py", ("tests/kafka_protocol/test_node_addresses.py",))
PLANS = Target("rlm/plans/node_addresses.py", ("tests/rlm/plans/test_node_addresses.py",))
SERVICE = Target("rlm/service/node_addresses.py", ("tests/rlm/service/test_node_addresses.py",))
TRIMS = Target("rlm/plans/trim.py", ("tests/rlm/plans/test_trim.py",))
PROXY = ("tests/rlm/proxy/test_node_addresses.py",)
PASSING = Target("rlm/proxy/passing.py", PROXY)
FETCHES = Target("rlm/proxy/fetch.py", PROXY)
SESSIONS = Target("rlm/proxy/session.py", PROXY)
PRODUCE = Target("kafka_protocol/produce.py", PROXY)
WORKERS = Target("rlm/workers/mirror.py", ("tests/rlm/workers/test_views.py",))

EDITS: tuple[Edit, ...] = (
    *WIRE.edits(
        (
            "ids of controllers are taken for those of brokers",
            "reader.int8() != _BROKERS",
            "reader.int8() < 0",
        ),
        (
            "a node that is left out is still counted",
            "            self.found.append((start, end, self._count(count - left_out)))\n",
            "            self.found.append((start, end, self._count(count)))\n",
        ),
        (
            "the error of a coordinator is replaced by an address",
            "        if error_code != NONE:\n            return\n",
            "",
        ),
        (
            "KIP-951: endpoints that flow are the broker's own",
            "            tags[at] = _UNKNOWN_TAG\n",
            "            tags[at] = _NODE_ENDPOINTS_TAG\n",
        ),
        (
            "H17: a node of which nothing is known is named",
            "not self.keeps_others and node_id not in self.replaced\n",
            "not self.keeps_others and node_id in self.replaced\n",
        ),
    ),
    *PLANS.edits(
        (
            "H19: a dead service sends its readers past the proxy",
            "            gone = frozenset() if seen.has_topics else seen.dead\n",
            "            gone = seen.dead\n",
        ),
        (
            "H19: what was given up stays given up for a new topic",
            "                gone=frozenset() if seen.has_topics else given_up,\n",
            "                gone=given_up,\n",
        ),
        (
            "H19: a broker without a service leads past all proxies after a trim",
            "            self._take(seen.proxies, gone, keeps_others=not seen.has_trims)\n",
            "            self._take(seen.proxies, gone, keeps_others=True)\n",
        ),
        (
            "H06: a settings topic that was lost ends every proxy",
            "                {**self.proxies, **seen.proxies},\n",
            "                seen.proxies,\n",
        ),
        (
            "H16: all are dead to a service that hears nobody",
            "            node_id for node_id, record in records.items() if hears_itself and",
            "            node_id for node_id, record in records.items() if",
        ),
        (
            "H17: before the replay every node is named",
            "        self._take(self.proxies, gone=frozenset(), keeps_others=False)\n",
            "        self._take(self.proxies, gone=frozenset(), keeps_others=True)\n",
        ),
        (
            "H24: the own proxy is given up",
            "        gone -= {self.own_node_id}\n",
            "",
        ),
    ),
    *SERVICE.edits(
        (
            "H17: a restart forgets the proxies",
            "        self._remembered: Mapping[int, NodeAddress] = self._file.read()\n",
            "        self._remembered: Mapping[int, NodeAddress] = {}\n",
        ),
        (
            "H17: addresses of a replay replace newer ones",
            "        if not settings.is_ready:\n            return",
            "        if not settings:\n            return",
        ),
        (
            "H06: settings in doubt are relied on",
            "            is_certain=settings.problem is None,\n",
            "            is_certain=True,\n",
        ),
        (
            "H24: workers forget what an earlier core knew",
            "        return self._known.addresses if self._known.is_settled else None\n",
            "        return self._known.addresses\n",
        ),
    ),
    *TRIMS.edits(
        (
            "H19: records are trimmed while clients come past the proxies",
            "    if unproxied:\n",
            "    if unproxied and not guards.live_nodes:\n",
        ),
    ),
    *PASSING.edits(
        (
            "KIP-951: an answer that flows names brokers",
            "            hide_node_endpoints(tags)\n",
            "            return\n",
        ),
    ),
    *FETCHES.edits(
        (
            "KIP-951: a Fetch answer names brokers",
            "if nodes is not None and response.api_version >= FIRST_FETCH_WITH_ENDPOINTS:",
            "if nodes is not None and response.api_version < FIRST_FETCH_WITH_ENDPOINTS:",
        ),
    ),
    *SESSIONS.edits(
        (
            "H17: coordinators are named past the proxy",
            "    FIND_COORDINATOR.key: Intercept.FIND_COORDINATOR,\n",
            "",
        ),
    ),
    *PRODUCE.edits(
        (
            "KIP-951: a Produce answer names brokers",
            "    if has_endpoints and nodes is not None:\n",
            "    if has_endpoints and nodes is not None and not patches:\n",
        ),
    ),
    *WORKERS.edits(
        (
            "H24: a worker does not follow its core",
            "            self.addresses = addresses_of(views.node_addresses)\n",
            "            self.addresses = self.addresses\n",
        ),
    ),
)
