"""Planted bugs in what is known of clients: who they are, what they read, who reads past us."""

from tests.mutants.edits import Edit, Target

_PROXY = ("tests/rlm/proxy/test_client_counts.py",)
TABLE = Target("rlm/plans/client_activity.py", ("tests/rlm/plans/test_client_activity.py",))
SAID = Target("rlm/proxy/introductions.py", ("tests/rlm/proxy/test_introductions.py",))
COUNTS = Target("rlm/proxy/client_counts.py", _PROXY)
SESSION = Target("rlm/proxy/session.py", _PROXY)
ANSWER = Target("rlm/proxy/fetch_answer.py", _PROXY)
READS = Target("rlm/proxy/reads.py", _PROXY)
API = Target("rlm/api/clients.py", ("tests/rlm/cli/test_clients.py",))
_COUNTS = ("tests/rlm/workers/test_counts.py",)
TAKER = Target("rlm/workers/counts.py", _COUNTS)
WORKER = Target("rlm/workers/worker.py", _COUNTS)

EDITS: tuple[Edit, ...] = (
    *TABLE.edits(
        (
            "G10: clients that call themselves something else each time fill the memory",
            "            if len(self._rows) >= self._most and not self._forget_one():\n",
            "            if not self._rows and not self._forget_one():\n",
        ),
        (
            "each topic of a group that reads remote data is a line in the log",
            "or (kind, name) in self._entered:",
            "or topic == name:",
        ),
        (
            "a member of a group counts as a client without one",
            "        if not row.groups:\n",
            "        if row.name.client_id:\n",
        ),
        (
            "what a worker has sent it sends again",
            "            row.topics, row.throttled_ms = {}, 0\n",
            "",
        ),
        (
            "connections of a worker that was killed stay for ever",
            "            self.connected(name, -count)\n",
            "            self.connected(name, 0)\n",
        ),
        (
            "G10: a client in more groups than are kept has its worker report in every turn",
            "        if len(row.groups) > known and self._on_joined is not None:\n",
            "        if self._on_joined is not None:\n",
        ),
        (
            "G10: changes that nobody takes are remembered for ever",
            "        if self._is_taken:\n",
            "        if self._most:\n",
        ),
        (
            "G10: clients that are gone fill the memory while a core takes nothing",
            "            if len(self._changed) > 2 * self._most:\n",
            "            if not self._changed:\n",
        ),
        (
            "a core that is away is told later of clients that are gone",
            "for name in self._changed if name in self._rows}",
            "for name in self._changed}",
        ),
        (
            "a new core knows nothing of clients that have connected before",
            "        self._changed.update(dict.fromkeys(self._rows))\n",
            "        self._changed.clear()\n",
        ),
    ),
    *TABLE.edits(
        (
            "G10: long names of groups fill the memory",
            "    if sum(map(len, names)) + len(name) <= _MOST_NAMES_CHARACTERS:\n",
            "    if _MOST_NAMES_CHARACTERS:\n",
        ),
    ),
    *SAID.edits(
        (
            "a name with a line end gets into the log",
            "name.isprintable() and ",
            "",
        ),
        (
            "a request that cannot be read ends the connection",
            "    except (WireError, UnicodeError, KeyError):\n",
            "    except (UnicodeError, KeyError):\n",
        ),
    ),
    *COUNTS.edits(
        (
            "H36: what strangers say of themselves is believed",
            "        self._is_admitted = self._is_counted = False\n",
            "        self._is_admitted, self._is_counted = True, False\n",
        ),
        (
            "a member that says its group in its first request is in none",
            "            self._table.joined(self._name, self._group)\n",
            "            pass\n",
        ),
        (
            "a client counts on under the name that it had before it logged in",
            "        if self._is_counted:\n            self._table.connected(before, -1)\n",
            "",
        ),
        (
            "connections that have ended count on",
            "            self._table.connected(self._name, -1)\n",
            "            self._table.connected(self._name, 0)\n",
        ),
    ),
    *SESSION.edits(
        (
            "a request that comes in pieces says nothing",
            "            return self._introduced is None\n",
            "            return True\n",
        ),
    ),
    *ANSWER.edits(
        (
            "bytes that flow past count for nobody",
            "+= given_bytes\n        self._gave(partition, 0, given_bytes)\n",
            "+= given_bytes\n",
        ),
    ),
    *READS.edits(
        (
            "a delay counts for no client",
            "        self._held(duration_ms)\n",
            "",
        ),
    ),
    *API.edits(
        (
            "H19: a group of another proxy counts as one that reads past them",
            "described, _groups_of(whole.clients))",
            "described, _groups_of(found.clients))",
        ),
        (
            "H19: whoever names a group hides that it reads past us",
            "described, _groups_of(whole.clients))",
            "described, _groups_of(rows))",
        ),
        (
            "H19: a group that some unknown client has named is hidden",
            "for row in readers if row.address for",
            "for row in readers for",
        ),
        (
            "H19: a member that reads by another proxy is left out, and its group reads past us",
            "or topic in row.topics or row.groups)",
            "or topic in row.topics)",
        ),
        (
            "H38: groups that could not be asked for are none",
            "            whole.direct_problem = str(error)\n",
            "",
        ),
    ),
    *TAKER.edits(
        (
            "clients of workers are not known in the core",
            "        self._clients.merge(worker, map(client_of, counts.clients))\n",
            "",
        ),
        (
            "connections of a worker that is gone count on",
            "        self._clients.left(worker)\n",
            "",
        ),
    ),
    *WORKER.edits(
        (
            "G10: a worker remembers every client that came and went while its core is away",
            "            self._clients.forget_gone()\n",
            "            pass\n",
        ),
        (
            "no client of a worker is known in the core",
            "on_joined=self._report_soon, is_taken=True)",
            "on_joined=self._report_soon)",
        ),
    ),
)
