"""Planted bugs in giving retention back under disk pressure."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/giveback.py", ("tests/rlm/plans/test_giveback.py",))
PRESSURE = Target("rlm/tasks/disk_pressure.py", ("tests/rlm/tasks/test_disk_pressure.py",))
GIVING = Target("rlm/topics/giveback.py", ("tests/rlm/topics/test_h18_giveback.py",))
TAKEOVER = Target("rlm/topics/takeover.py", ("tests/rlm/topics/test_h18_giveback.py",))
KEEPER = Target("rlm/topics/keeper.py", ("tests/rlm/topics/test_h18_giveback.py",))
HOLES = Target("rlm/tasks/hole_watch.py", ("tests/rlm/tasks/test_hole_watch.py",))
TRIM = Target("rlm/tasks/trim.py", ("tests/rlm/tasks/test_hole_watch.py",))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "H18: a limit reaches into local retention",
            "max(1, *(log.least_bytes for log in logs))",
            "1",
        ),
        (
            "H18: all that is beyond local retention is given back",
            "            low = middle\n",
            "            high = low\n",
        ),
        (
            "H18: a broker without a live service counts as one with space",
            "        return Step.END if is_known else None",
            "        return Step.END",
        ),
        (
            "H26: records that a client deletes inside a segment are explained as ours",
            "or segments[0][0] != log_start_offset:",
            "or segments[0][0] > log_start_offset:",
        ),
        (
            "H26: records that a client deletes below the limit are explained as ours",
            "    return sum(size for _, size in segments) >= min(known)\n",
            "    return True\n",
        ),
        (
            "H18: retention is given back where no leader could say that a partition is frozen",
            "Step.BEGIN if is_led and not is_enough else None",
            "Step.BEGIN if not is_enough else None",
        ),
        (
            "H18: what was asked for is forgotten while pressure lasts",
            "    wanted = dict(before)\n",
            "    wanted: dict[Uuid, int] = {}\n",
        ),
    ),
    *PLAN.edits(
        (
            "H18: what earlier limits will free is given back by another topic too",
            "    needed_bytes -= sum(freed.values())\n",
            "",
        ),
    ),
    *PRESSURE.edits(
        (
            "H18: what cannot be read for a moment makes other topics lose records",
            "        return 0 < count <= MOST_UNREAD_CHECKS\n",
            "        return False\n",
        ),
        (
            "H18: what stays unreadable lets the disk fill up",
            "        return 0 < count <= MOST_UNREAD_CHECKS\n",
            "        return 0 < count\n",
        ),
        (
            "H18: moments in which a log cannot be read add up",
            "get(path, 0) + 1 if asked_unread else 0\n",
            "get(path, 0) + bool(asked_unread)\n",
        ),
        (
            "H18: a log that nobody asked anything keeps others from making room",
            "logs.topics_unread & before.keys()",
            "logs.topics_unread",
        ),
        (
            "H18: the default policy gives back",
            "if not (self._gives_back and pressed and self._settings.is_ready):",
            "if not (pressed and self._settings.is_ready):",
        ),
        (
            "H18: topics in mode copy are given back",
            'if record.state == "enabled" and record.mode == "tier" and record.trim',
            'if record.state == "enabled" and record.trim',
        ),
        (
            "H18: topics whose trim is off are given back",
            'record.mode == "tier" and record.trim',
            'record.mode == "tier"',
        ),
        (
            "H18: files that the broker is about to remove are deleted twice",
            "sum(_deleted_bytes(directory) for directory in here.values())",
            "0",
        ),
        (
            "H39: a topic of another id is given back",
            "        if found.topic_id != record.topic_id:\n            return None\n",
            "",
        ),
        (
            "H18: a log that cannot be read keeps every topic from making room",
            "            except (OSError, RemoteStorageError) as error:\n",
            "            except LookupError as error:\n",
        ),
        (
            "H18: a topic makes room though local retention of one of its logs is not known",
            "            found.known.pop(topic_id, None)\n",
            "            found.known.get(topic_id)\n",
        ),
        (
            "H18: a log dir that cannot be listed keeps every other one from making room",
            "            except RemoteStorageError as error:\n"
            "                unread.append(_unread_dir(report, error))\n",
            "            except LookupError as error:\n"
            "                unread.append(_unread_dir(report, error))\n",
        ),
        (
            "H18: a file that the broker removes meanwhile hides those that it will remove",
            "    except FileNotFoundError:\n",
            "    except LookupError:\n",
        ),
    ),
    *GIVING.edits(
        (
            "H18: a frozen topic is given back",
            "view.stopped_by(topic.topic_id, STOPS_TRIM)\n            or ",
            "",
        ),
        (
            "H18: a topic whose trim was switched off stays given back",
            "if not record.trim:",
            "if False:",
        ),
        (
            "H14: a topic is given back where the service alters no configuration",
            "if not (is_ready and self._settler.alters_configs):",
            "if not is_ready:",
        ),
        (
            "H18: a partition that is frozen by its lineage is given back",
            "if history is not None and history.frozen is not None:",
            "if False:",
        ),
        (
            "H18: a partition whose deletion is recorded is given back",
            "if deletion_problem is not None:",
            "if False:",
        ),
        (
            "H18: retention is given back while the ledger has a problem",
            "            or self._ledger.problem\n",
            "",
        ),
        (
            "H18: retention is given back while the settings have a problem",
            "            or self._settings.problem\n",
            "",
        ),
        (
            "H18: an absent service keeps what is frozen given back",
            "is_known=refusal is not None or await self._are_down(replicas - live),",
            "is_known=await self._are_down(replicas - live),",
        ),
        (
            "H18: what is given back never ends while a broker is gone for good",
            "        return bool(alive) and alive.keys().isdisjoint(nodes)\n",
            "        return False\n",
        ),
        (
            "H18: a broker that is alive and has no live service counts as one with space",
            "        return bool(alive) and alive.keys().isdisjoint(nodes)\n",
            "        return bool(alive)\n",
        ),
        (
            "H38: brokers of which nobody knows whether they are alive count as gone",
            "            return False\n        return bool(alive)",
            "            return True\n        return bool(alive)",
        ),
        (
            "H18: a limit that a crash left unset is set after a freeze",
            "if record.given_back is not None and refusal is None:",
            "if record.given_back is not None:",
        ),
        (
            "H18: a ledger that is not read yet ends what is given back",
            "self._settings.is_ready and self._ledger.is_ready",
            "self._settings.is_ready",
        ),
        (
            "H18: a dead service asks for ever",
            "if service.node_id in replicas & live and",
            "if service.node_id in replicas and",
        ),
        (
            "H14: a former limit becomes an original",
            "former_limits={} if given is None else given.limits,",
            "former_limits={},",
        ),
    ),
    *TAKEOVER.edits(
        (
            "H14: our own limit becomes an original",
            "return value == UNLIMITED or (value is not None and value in limits)",
            "return value == UNLIMITED",
        ),
    ),
    *TAKEOVER.edits(
        (
            "H14: a foreign retention is fought while retention is given back",
            "if _own(config, name) != value and _is_ours(record, name, _own(config, name))",
            "if _own(config, name) != value",
        ),
    ),
    *KEEPER.edits(
        (
            "H14: our own limit is a foreign bound",
            "self._takeover == EXTERNAL or is_foreign_bound(record, config)",
            "True",
        ),
        (
            "H14: a limit that nobody ends any more is no alarm",
            "self._takeover == EXTERNAL or is_foreign_bound(record, config)",
            "is_foreign_bound(record, config)",
        ),
    ),
    *HOLES.edits(
        (
            "H01: a gap that nobody explains explains a move of the log start",
            "        if not rest:\n            return await",
            "        if True:\n            return await",
        ),
        (
            "H15: what an open attempt had is never a hole when it fails",
            "        if may_turn_out_missing(view) or self._held(snapshot):\n",
            "        if self._held(snapshot):\n",
        ),
        (
            "H15: what is held open is never a hole when it is lost",
            "        if may_turn_out_missing(view) or self._held(snapshot):\n",
            "        if may_turn_out_missing(view):\n",
        ),
        (
            "H01: what goes while retention is given back is a foreign move later",
            "        await self._settings.publish(intent, epoch)\n",
            "",
        ),
    ),
    *TRIM.edits(
        (
            "H01: what goes while retention is given back is a foreign move",
            'if record.mode != "tier" or record.given_back is not None or start is None:',
            'if record.mode != "tier" or start is None:',
        ),
    ),
)
