"""Planted bugs in DeleteRecords of clients, and in what follows it in the remote tier (H26)."""

from tests.mutants.edits import Edit, Target

DELETES = Target("rlm/proxy/delete_records.py", ("tests/rlm/proxy/test_h26_delete_records.py",))
RAISES = Target("rlm/remote_log/client_deletions.py", ("tests/rlm/test_h26_client_deletions.py",))

STRANGERS = Target("rlm/proxy/delete_records.py", ("tests/rlm/proxy/test_g8_strangers.py",))

EDITS: tuple[Edit, ...] = (
    *STRANGERS.edits(
        (
            "G8: a stranger's DeleteRecords has barriers passed",
            "for key in unknown if key not in refused)\n",
            "for key in unknown)\n",
        ),
    ),
    *DELETES.edits(
        (
            "H1: a service's trim that was sent to a proxy ends the archive",
            "        if is_sent_by_a_service(parse_request_header(taken.frame).client_id):\n",
            "        if is_sent_by_a_service(None):\n",
        ),
        (
            "H17: without a barrier a deletion is forwarded",
            "            return self._refuse(one, NOT_NOW, str(view))\n",
            "            return Forwarded(question=one, offset=one.asked, view=None)\n",
        ),
        (
            "H26: a frozen partition's records are deleted",
            "        stopped = self._deletions.refusal(view)\n",
            "        stopped = None\n",
        ),
        (
            "H2: records are deleted before there is a remote log start",
            "        if view.remote_log_start_offset < 0:\n",
            "        if view.remote_log_start_offset < -1:\n",
        ),
        (
            "H26: the start is a low watermark that our trim has raised",
            "        start = await self._raised(forwarded, forwarded.view)\n",
            "        low = Forwarded(\n"
            "            question=forwarded.question,\n"
            "            offset=answered['low_watermark'],\n"
            "            view=forwarded.view,\n"
            "        )\n"
            "        start = await self._raised(low, forwarded.view)\n",
        ),
        (
            "H26: -1 is taken for an offset",
            "        if one.asked != _HIGH_WATERMARK or not view.led_here:\n",
            "        if one.asked or not view.led_here:\n",
        ),
        (
            "H26: a deletion is asked for with an unknown high watermark",
            "        return None if watermarks is None else watermarks.high_watermark\n",
            "        return one.asked if watermarks is None else watermarks.high_watermark\n",
        ),
        (
            "H26: the start moves although the broker refused",
            '        if answered["error_code"] != NONE:\n',
            '        if answered["error_code"] not in (NONE, REQUEST_TIMED_OUT):\n',
        ),
        (
            "H26: the client has a success before the start was read back",
            "            self._ask_again(forwarded, answered, str(start))\n            return\n",
            "            return\n",
        ),
        (
            "H26: the low watermark is the broker's",
            '        answered["low_watermark"] = max(forwarded.offset, start)\n',
            "        pass\n",
        ),
        (
            "H26: a high watermark that we put in is the client's mistake",
            "        if is_ours and answered[",
            "        if not is_ours and answered[",
        ),
        (
            "H17: a topic that was enabled meanwhile is answered as plain",
            "        if await self._work.view(one.topic, one.partition) is None:\n",
            "        if one.topic:\n",
        ),
        (
            "H5: the start moves under a leadership that was not seen before",
            "        if not view.led_here or forwarded.offset < 0:\n",
            "        if forwarded.offset < 0:\n",
        ),
        (
            "a raise that hangs holds the client for ever",
            "            async with asyncio.timeout(self._work.left_ms() / 1000):\n"
            "                return await guarded(self._deletions",
            "            async with asyncio.timeout(None):\n"
            "                return await guarded(self._deletions",
        ),
        (
            "H26: a refused deletion is answered as done",
            '"error_code": decision.error_code}',
            '"error_code": 0}',
        ),
        (
            "G8: who may not delete learns what stops deletions",
            "        return {key: refused.get(key, one or not_now) for key,",
            "        return {key: one or not_now for key,",
        ),
        (
            "H26: a refusal is answered as perhaps done because followers of the broker lag",
            "_MAY_DELETE = (NONE, REQUEST_TIMED_OUT)\n",
            "_MAY_DELETE = (NONE,)\n",
        ),
        (
            "H26: records are deleted to find out who may delete them",
            '"offset": _BELOW_EVERY_LOG} for key in keys}',
            '"offset": 150} for key in keys}',
        ),
        (
            "H26: of two offsets for a partition the tiers take different ones",
            "    return {(one.topic, one.partition): one for one in asked}\n",
            "    return {(one.topic, one.partition): one for one in reversed(asked)}\n",
        ),
    ),
    *RAISES.edits(
        (
            "H4: a frozen partition's remote log start is raised",
            "        if view.frozen:\n",
            "        if view.frozen is None:\n",
        ),
        (
            "H6: a problem of the settings does not stop deletions",
            "self._settings.problem or self._ledger.problem",
            "self._ledger.problem",
        ),
        (
            "H6: a problem of the ledger does not stop deletions",
            "self._settings.problem or self._ledger.problem",
            "self._settings.problem",
        ),
        (
            "H26: a freeze of sweeps stops DeleteRecords",
            "stopped_by(view.topic_id, STOPS_DELETE)",
            'stopped_by(view.topic_id, "sweep")',
        ),
        (
            "H26: a freeze does not stop deletions",
            "        return None if stopped is None else",
            "        return None if stopped else",
        ),
        (
            "H26: a raise ends with its client",
            "await asyncio.shield(self._tasks.create_task(self._outcome(view, offset)))",
            "await self._tasks.create_task(self._outcome(view, offset))",
        ),
        (
            "a bug in a raise ends the service",
            "        except Exception as error:\n",
            "        except KeyError as error:\n",
        ),
        (
            "H2: two raises race, and the lower start may be last",
            "        async with self._raising.setdefault(led.key, asyncio.Lock()):\n",
            "        async with asyncio.Lock():\n",
        ),
        (
            "H26: what stops deletions does not stop a raise",
            "        stopped = self.refusal(view)\n",
            "        stopped = None\n",
        ),
        (
            "H5: the start moves under another leadership",
            "        await self._leadership.check_leadership(led)\n",
            "",
        ),
    ),
)
