"""Planted bugs in reloads: a setting is taken that waits for a restart, or one reaches not all."""

from tests.mutants.edits import Edit, Target

_RUNNING = Target("rlm/config/running.py", ("tests/rlm/config/test_running.py",))
_STORES = Target("rlm/config/stores.py", ("tests/rlm/config/test_stores.py",))
_RELOADING = Target("rlm/service/reloading.py", ("tests/rlm/service/test_reloading.py",))
_POOL = Target("rlm/tasks/pool.py", ("tests/rlm/tasks/test_pool.py",))
_QUOTAS = Target("rlm/reading/throttle.py", ("tests/rlm/reading/test_quota.py",))
_CORE = Target("rlm/workers/core.py", ("tests/rlm/workers/test_h24_core_calls.py",))
_CHILDREN = Target("rlm/workers/children.py", ("tests/rlm/workers/test_h24_supervisor.py",))
_RIGHTS = Target("rlm/api/method_rights.py", ("tests/rlm/api/test_method_rights.py",))

EDITS: tuple[Edit, ...] = (
    *_RUNNING.edits(
        (
            "a reload takes settings that components have read at their start",
            "for name, row in rows if row.changes_while_running}",
            "for name, row in rows}",
        ),
        (
            "a reload does not say what waits for a restart",
            "needs_restart += _of_stores(before, after) if name == _STORES else [row.key]",
            "continue",
        ),
    ),
    *_STORES.edits(
        (
            "a secret in braces is in the refusal of its setting",
            'return "a mapping"',
            "return f\"a mapping of {', '.join(map(str, content))}\"",
        ),
    ),
    *_RELOADING.edits(
        (
            "components are not given what was reloaded",
            "        self._apply(after)\n",
            "",
        ),
        (
            "G6: a signal whose settings cannot be read in time ends the service",
            "        except RemoteStorageError:\n            return\n",
            "        except NotImplementedError:\n            return\n",
        ),
        (
            "G6: a signal whose settings break their parser ends the service",
            "except Exception:  # a fault in a reload",
            "except NotImplementedError:  # a fault in a reload",
        ),
    ),
    *_POOL.edits(
        (
            "G6: a pool that became smaller runs as many jobs as before",
            "if self._worker_count > self._size:",
            "if False:",
        ),
        (
            "G6: what listens to the ends of jobs ends their pool",
            "except Exception:  # what listens",
            "except NotImplementedError:  # what listens",
        ),
        (
            "G6: a reload fails half-way while a pool ends",
            "                self._workers = None  # it takes no task while it ends\n",
            "                pass\n",
        ),
    ),
    *_QUOTAS.edits(
        (
            "H23: an open connection keeps the rate that it began with",
            "if rate != self._bucket.rate:  # it was changed",
            "if False:",
        ),
    ),
    *_CORE.edits(
        (
            "workers keep the quota of a client that was changed",
            "            link.send_terms()\n",
            "            return\n",
        ),
    ),
    *_CHILDREN.edits(
        (
            "H24: a reload ends a core that is starting",
            "            self._owed.add(number)\n            return\n",
            "            pass\n",
        ),
    ),
    *_RIGHTS.edits(
        (
            "a reload leaves no line in the audit log",
            'words="configure on every topic", needs=_on_every(_C), changes=_always',
            'words="configure on every topic", needs=_on_every(_C)',
        ),
    ),
)
