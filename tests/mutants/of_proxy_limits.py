"""Planted bugs in limits for each identity: who counts as whom, and how many of each there are."""

from tests.mutants.edits import Edit, Target

_SASL = ("tests/rlm/proxy/test_sasl.py",)
SASL = Target("rlm/proxy/sasl.py", _SASL)
SESSION = Target("rlm/proxy/session.py", _SASL)
IDENTITIES = Target("rlm/proxy/identities.py", _SASL)
CONNECTIONS = Target("rlm/proxy/client_connections.py", _SASL)
_SHARED = ("tests/rlm/proxy/test_shared_certificates.py",)
SHARED = Target("rlm/proxy/client_connections.py", _SHARED)
SERVER = Target("rlm/proxy/server.py", _SHARED)
THROTTLE = Target("rlm/reading/throttle.py", _SASL)
LIMITS = Target("rlm/proxy/limits.py", ("tests/rlm/proxy/test_h36_deadlines.py",))
STALLED = Target("rlm/proxy/limits.py", ("tests/rlm/proxy/test_stalled.py",))
_READ = ("tests/rlm/proxy/test_h36_memory.py", "tests/rlm/proxy/test_h36_read_requests.py")
READ_REQUESTS = Target("rlm/proxy/session.py", _READ)
PARTITION_WORK = Target("rlm/proxy/partition_work.py", _READ)
PAIRED = Target("rlm/proxy/position_answers.py", _READ)
COUNTS = Target("rlm/workers/counts.py", ("tests/rlm/workers/test_counts.py",))
PERMIT = Target("rlm/proxy/reads.py", ("tests/rlm/proxy/test_quota.py",))
QUOTAS = Target("rlm/workers/quotas.py", ("tests/rlm/workers/test_counts.py",))

EDITS: tuple[Edit, ...] = (
    *SASL.edits(
        (
            "H36: SASL alone admits a stranger",
            "None, admits=False",
            "None, admits=True",
        ),
        (
            "a name counts although the broker has refused it",
            '        if answered["error_code"] != NONE:\n            return None\n',
            "",
        ),
        (
            "the first message of SCRAM proves a name",
            '"SCRAM-SHA-512": 2, ',
            '"SCRAM-SHA-512": 1, ',
        ),
        (
            "a name with a line end gets into the log",
            "text.isprintable() and ",
            "",
        ),
        (
            "the id of a delegation token is taken for a principal",
            '    if extensions.get(_BY_TOKEN, b"").lower() == b"true":\n        return None\n',
            "",
        ),
        (
            "a user who names an extension of its own is nobody to limits",
            'extensions.get(_BY_TOKEN, b"").lower() == b"true":',
            'b"tokenauth=true" in token.lower():',
        ),
        (
            "a second login begins in the middle of the first",
            "= mechanism, 0, None",
            "= mechanism, self._accepted, None",
        ),
        (
            "a bearer token that the broker refuses by a challenge proves a name",
            "        if self._mechanism == OAUTHBEARER and challenge:\n            return None\n",
            "",
        ),
        (
            "of two bearer tokens the one that the broker has not read proves a name",
            "_AUTH.fullmatch(auths[-1])",
            "_AUTH.fullmatch(auths[0])",
        ),
        (
            "who sends two bearer tokens is nobody to limits and rules",
            "(auths[-1]) if auths else",
            "(auths[-1]) if len(auths) == 1 else",
        ),
        (
            "a token counts for its claim where the broker takes another one",
            " and matched[1] in (None, name.encode()) else None",
            " else None",
        ),
        (
            "H36: claims that nest too deeply end the proxy's connection",
            "    except (ValueError, RecursionError):",
            "    except ValueError:",
        ),
    ),
    *SESSION.edits(
        (
            "tokens pass unseen",
            "        SASL_AUTHENTICATE.key,\n    }",
            "    }",
        ),
    ),
    *READ_REQUESTS.edits(
        (
            "H36: a request that is read may be as large as any frame",
            "        if size_bytes > self._read_request_bytes:",
            "        if size_bytes > self._max_frame_bytes:",
        ),
        (
            "H36: what the broker has answered once may send anything",
            "        self._is_admitted, self._first_frame_bytes = True, None\n",
            "        self._is_admitted, self._first_frame_bytes = True, None\n"
            "        self._read_request_bytes = self._max_frame_bytes\n",
        ),
    ),
    *PARTITION_WORK.edits(
        (
            "H36: each partition of a request has a task at once",
            "range(min(len(waiting), _MOST_AT_ONCE))",
            "range(len(waiting))",
        ),
    ),
    *PAIRED.edits(
        (
            "H36: a partition that is asked for again and again takes minutes",
            "            pairs.append((one, waiting.popleft()))",
            "            pairs.append((one, waiting[0]))\n"
            "            found[one.topic, one.partition] = deque(list(waiting)[1:])",
        ),
        (
            "a partition that is asked for twice is answered in another order",
            "waiting.popleft()",
            "waiting.pop()",
        ),
    ),
    *IDENTITIES.edits(
        (
            "a principal has as many connections as it likes",
            "        if self._counts[name] >= self.most:\n            return False\n",
            "",
        ),
        (
            "connections that have ended count on",
            "        self.addresses.leave(identity.address)\n",
            "",
        ),
        (
            "a connection may change its name as often as it likes",
            "        if identity.is_by_sasl or id",
            "        if id",
        ),
        (
            "a connection that proves its name twice counts twice",
            "        if identity.is_counted and identity.principal == principal:\n",
            "        if identity.is_counted and identity.principal == principal and not by_sasl:\n",
        ),
    ),
    *SHARED.edits(
        (
            "users of SASL that share a certificate share its connections",
            "            if name is not None and not watch.has_let_in:\n",
            "            if name is not None:\n",
        ),
        (
            "a certificate at a listener without SASL has as many connections as it likes",
            "            if name is not None and not watch.has_let_in:\n",
            "            if name is None and not watch.has_let_in:\n",
        ),
    ),
    *SERVER.edits(
        (
            "a certificate has as many connections as it likes that only ask for versions",
            "            stayed=self._count_by_certificate,\n",
            "",
        ),
    ),
    *CONNECTIONS.edits(
        (
            "a principal that is known has no quota",
            "            for one in (view, fetches, counts):\n",
            "            for one in (view, counts):\n",
        ),
    ),
    *THROTTLE.edits(
        (
            "H23: a principal evades its quota by another client id",
            "            self._throttle.principal_took(self._principal, size_bytes)\n",
            "            pass\n",
        ),
    ),
    *LIMITS.edits(
        (
            "H36: single bytes hold a connection for ever",
            "        is_slow = sent_bytes < self._settings.stalled_request_min_bytes\n",
            "        is_slow = sent_bytes < 1\n",
        ),
        (
            "a client of many small requests is taken for a slow one",
            "        return is_slow and client.is_read and client.requests.is_within_frame\n",
            "        return is_slow and client.is_read\n",
        ),
    ),
    *STALLED.edits(
        (
            "H36: single bytes hold an answer for ever",
            "client.taken_bytes - known.taken_bytes < self._least_bytes:",
            "client.taken_bytes == known.taken_bytes:",
        ),
        (
            "a slow client is ended as one that takes nothing",
            "_LEAST_TAKEN_BYTES_PER_S = 16_384\n",
            "_LEAST_TAKEN_BYTES_PER_S = 131_072\n",
        ),
        (
            "nothing says that a client which was ended did take a little",
            'cause = "slow_reader" if taken_bytes else "stalled"',
            'cause = "stalled"',
        ),
    ),
    *COUNTS.edits(
        (
            "H23: in a worker the core does not know of principals",
            "                self._throttle.principal_took(one.principal, one.size_bytes)\n",
            "                pass\n",
        ),
    ),
    *COUNTS.edits(
        (
            "G10: a worker keeps every client id while its core is away",
            "client_id in by_client or len(by_client) < _MOST_NAMES\n",
            "client_id in by_client or _MOST_NAMES > 0\n",
        ),
        (
            "G10: a worker keeps every principal while its core is away",
            "(principal in by_principal or len(by_principal) < _MOST_NAMES):",
            "(principal in by_principal or _MOST_NAMES > 0):",
        ),
    ),
    *PERMIT.edits(
        (
            "H36: quotas keep client ids of any length",
            "client_id[:_MOST_CLIENT_ID]",
            "client_id",
        ),
        (
            "H23: who reads the tail has a share of the remote rate",
            "        if spliced_bytes > 0:\n",
            "        if spliced_bytes >= 0:\n",
        ),
    ),
    *QUOTAS.edits(
        (
            "H23: in a worker a principal waits for nothing",
            ' + ([("", principal)] if principal else [])',
            "",
        ),
    ),
)
