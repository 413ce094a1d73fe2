"""Planted bugs in the ends of clients: connections that stay open, stops that do not end."""

from tests.mutants.edits import Edit, Target

CLOSING = Target("kafka_clients/closing_client.py", ("tests/kafka_clients/test_closing_client.py",))
END_CLIENT = Target("rlmm/end_offsets.py", ("tests/rlmm/test_silent_brokers.py",))

EDITS: tuple[Edit, ...] = (
    *CLOSING.edits(
        (
            "a stop that is cancelled at the wrong moment goes on as if nobody had cancelled it",
            '            _log.info("A consumer was stopped and cancelled: %r", error)\n'
            "        raise\n",
            "            raise\n",
        ),
        (
            "H10: a client that is cut goes on sending once its broker takes something",
            "        self._end()\n        for transport in self._ending:\n"
            "            transport.abort()\n",
            "        self._end()\n",
        ),
        (
            "a close that is cancelled leaves a connection to a broker that hangs",
            "            for transport in self._ending:  # one that has ended takes no notice\n"
            "                transport.abort()\n",
            "            pass\n",
        ),
        (
            "a connection that opens while its client is closed stays open",
            "        if self._is_closed:\n            connection.close(",
            "        if False:\n            connection.close(",
        ),
        (
            "a fetch that waits to be tried again ends the stop of its consumer, and the tail",
            "        pending, fetcher._pending_tasks = fetcher._pending_tasks, set()\n",
            "        pending: set[Any] = set()\n",
        ),
    ),
    *END_CLIENT.edits(
        (
            "a client that connects while it is closed stays open",
            "        both = self._consumer, self._connecting\n",
            "        both = (self._consumer,)\n",
        ),
    ),
)
