"""Planted bugs in the topic verbs: whose retention acts, and what is written down before."""

from tests.mutants.edits import Edit, Target

_VERBS = (
    "tests/rlm/topics/test_enable_check.py",
    "tests/rlm/topics/test_verb_guards.py",
    "tests/rlm/topics/test_verbs.py",
    "tests/rlm/topics/test_h14_takeover.py",
)
VERBS = Target("rlm/topics/verbs.py", (*_VERBS, "tests/rlm/topics/test_h40_access.py"))
SETTLE = Target("rlm/topics/takeover.py", _VERBS)
TAKEOVER = Target("rlm/topics/takeover.py", _VERBS)
RETENTION_CONFIGS = Target("rlm/topics/retention_configs.py", _VERBS)
STARTS = Target("rlm/topics/partition_records.py", _VERBS)
RAISED = Target("rlm/remote_log/log_starts.py", ("tests/rlm/test_log_starts.py",))
ADOPTION = Target("rlm/topics/partition_records.py", ("tests/rlm/topics/test_adoption.py",))
KEEPER = Target("rlm/topics/keeper.py", _VERBS)
RULES = Target("rlm/topics/rules.py", _VERBS)
REVOCATION = Target("rlm/topics/revocation.py", _VERBS)
BROKER_VERSION = Target("rlm/broker/versions.py", ("tests/rlm/test_startup.py",))
FREEZES = Target(
    "rlm/topics/partition_records.py",
    ("tests/rlm/topics/test_freezes.py", "tests/rlm/topics/test_verb_guards.py"),
)

EDITS: tuple[Edit, ...] = (
    *VERBS.edits(
        (
            "H17: the record is as stale as it may be",
            "        await "
            "self._dependencies.settings.barrier(self._dependencies.barrier_deadline_ms)\n",
            "",
        ),
        (
            "H2: a topic is enabled before its remote log starts are written",
            "        await self._dependencies.starts.ensure(seen.topic, options.remains)\n"
            "        await self._dependencies.shortening.announce(\n"
            "            seen.topic, change, by=options.by, writing=seen.writing\n"
            "        )\n"
            "        await self._publish(seen, record)\n",
            "        await self._dependencies.shortening.announce(\n"
            "            seen.topic, change, by=options.by, writing=seen.writing\n"
            "        )\n"
            "        await self._publish(seen, record)\n"
            "        await self._dependencies.starts.ensure(seen.topic, options.remains)\n",
        ),
        (
            "H2: the remote log starts of a topic are never written",
            "        await self._dependencies.starts.ensure(seen.topic, options.remains)\n",
            "",
        ),
        (
            "H2: what only checks a topic writes its remote log starts",
            "            await self._dependencies.starts.check(seen.topic, options.remains)\n",
            "            await self._dependencies.starts.ensure(seen.topic, options.remains)\n",
        ),
        (
            "H19: nobody snapshots who reads the topic before it is trimmed",
            "        if record.trim and not (before is not None and before.trim):\n",
            "        if record.trim and before is None:\n",
        ),
        (
            "a topic that is being deleted is enabled again",
            'if (before is not None and before.state == "deleting") or await self._is_ending(',
            "if await self._is_ending(",
        ),
        (
            "a topic of which a deletion is recorded is enabled",
            'if (before is not None and before.state == "deleting") or await self._is_ending(',
            'if (before is not None and before.state == "deleting") or bool(0 and ',
        ),
        (
            "H17: a stale ledger says whether a deletion is recorded",
            "            await self._read_ledger(keys)\n        return any(",
            "            pass\n        return any(",
        ),
        (
            "topics that must not be enabled are",
            "        rules.refuse(seen.topic, seen.config)\n        before",
            "        before",
        ),
        (
            "H14: originals that are known are overwritten",
            "    if tier and not originals:\n",
            "    if tier:\n",
        ),
        (
            "H14: nothing is remembered of the topic's own retention",
            "        originals = originals_of(seen.config)\n",
            "        originals = {}\n",
        ),
        (
            "H14: a change of retention ends the taking over",
            "tier = options.trim or options.tier or stays_tier",
            "tier = options.trim or options.tier",
        ),
        (
            "a change of retention ends the trim",
            "trim=options.trim or (before is not None and was_enabled and before.trim),",
            "trim=options.trim,",
        ),
        (
            "trim on is taken from a time before the topic was disabled",
            "trim=options.trim or (before is not None and was_enabled and before.trim),",
            "trim=options.trim or (before is not None and before.trim),",
        ),
        (
            "fields of a later version are lost",
            "extra=before.extra if before is not None else {},",
            "extra={},",
        ),
        (
            "`trim off` leaves the trim on",
            "replace(record, trim=False, mode=mode)",
            "replace(record, mode=mode)",
        ),
        (
            "data that only the remote store has goes out of reach in silence",
            "                await self._refuse_unreachable(seen.topic)\n",
            "                pass\n",
        ),
        (
            "offsets that only the remote store has are not seen",
            "            if lowest is not None and lowest < start:\n",
            "            if lowest is not None and lowest > start:\n",
        ),
        (
            "what has ended below the remote start holds a disable up",
            "            if entry.metadata.next_offset > start\n",
            "            if entry.metadata.next_offset >= start\n",
        ),
        (
            "a kept topic is trimmed",
            '        if record.state != "enabled":\n            raise NotFound',
            '        if record.state == "deleting":\n            raise NotFound',
        ),
    ),
    *SETTLE.edits(
        (
            "H14: a service that does not lead partition 0 alters the topic",
            "        if first.leader != self._node_id:\n",
            "        if first.leader == self._node_id + 1_000:\n",
        ),
        (
            "H14: the record is as stale as it may be when the topic is altered",
            "            await self._settings.barrier(self._barrier_deadline_ms)\n"
            "            record = self._record",
            "            record = self._record",
        ),
        (
            "H14: leadership is not asked for before the topic is altered",
            "                    await self._refuse_unless_led(name, topic_id)\n",
            "                    pass\n",
        ),
        (
            "H39: a topic recreated meanwhile is altered",
            "        if topic.topic_id != topic_id:\n            raise Unavailable",
            "        if topic is None:\n            raise Unavailable",
        ),
        (
            "H14: a change counts as done before the broker shows it",
            "        await self._until_shown(name, change)\n",
            "",
        ),
        (
            "H14: a late change after somebody's giving back stays",
            "                remembered = record\n",
            "                pass\n",
        ),
    ),
    *TAKEOVER.edits(
        (
            "H14: somebody's newer retention is overwritten when ours is given back",
            "        if _is_ours(record, name, own := _own(config, name)) and value != own\n",
            "        if value != _own(config, name)\n",
        ),
        (
            "H14: what was not set on the topic is set when ours is given back",
            "unset=tuple(name for name, value in ours.items() if value is None),",
            "unset=(),",
        ),
        (
            "H14: a default of the cluster counts as the topic's own",
            "return found.value if found is not None and found.is_topic_level else None",
            "return found.value if found is not None else None",
        ),
        (
            "H14: a topic that is kept has its retention taken over",
            'return record.mode == "tier" and (record.state == "enabled" or is_gone_end(record))',
            'return record.mode == "tier"',
        ),
        (
            "H7: a topic that seems to be deleted gets its retention back",
            '(record.state == "enabled" or is_gone_end(record))',
            'record.state == "enabled"',
        ),
        (
            "H14: a topic in mode copy has its retention taken over",
            'return record.mode == "tier" and (record.state == "enabled" or is_gone_end(record))',
            'return record.state == "enabled" or is_gone_end(record)',
        ),
    ),
    *RETENTION_CONFIGS.edits(
        (
            "H14: retention by size is not taken over",
            "TAKEN_OVER = (RETENTION_MS, RETENTION_BYTES)",
            "TAKEN_OVER = (RETENTION_MS,)",
        ),
    ),
    *ADOPTION.edits(
        (
            "H1: a foreign log start is adopted by a view that is behind",
            "\n        async def check() -> None:\n"
            "            self._check_foreign(led, answer.offset, frozen)\n",
            "        self._check_foreign(led, answer.offset, frozen)\n\n"
            "        async def check() -> None: ...\n",
        ),
        (
            "H1: our own trim is adopted as a foreign log start",
            "        if trim is not None and log_start_offset <= trim.bound:\n",
            "        if trim is not None and log_start_offset < trim.bound:\n",
        ),
        (
            "H2: a log start below the remote one is adopted",
            "        if log_start_offset <= known:\n",
            "        if log_start_offset == known:\n",
        ),
    ),
    *RAISED.edits(
        (
            "H2: a remote log start moves on a stale view",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n"
            "        await check()\n        known",
            "        await check()\n        known",
        ),
        (
            "H1: a start is raised by what was changed while the audit log was written",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n"
            "        await check()\n        record",
            "        await check()\n        record",
        ),
        (
            "a remote log start that is as high already is written again",
            "        if known >= remote_log_start_offset:\n            return known\n",
            "",
        ),
        (
            "H2: a start that was refused counts as raised",
            "            if known is None or known < remote_log_start_offset:\n"
            "                raise\n",
            "",
        ),
        (
            "H2: a start that another cause has raised higher is an error",
            "            if known is None or known < remote_log_start_offset:\n"
            "                raise\n",
            "            raise\n",
        ),
        (
            "G4: a start is raised though its reason has ended since the barrier",
            "        await check()\n        record = StartRecord(",
            "        record = StartRecord(",
        ),
        (
            "H1: a start is raised for a reason that was checked on a stale view",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n"
            "        await check()\n        known",
            "        await check()\n"
            "        await self._settings.barrier(self._barrier_deadline_ms)\n        known",
        ),
        (
            "a start is raised without a line in the audit log",
            "        await self._audit.start_raised(\n",
            "        self._audit.start_raised(\n",
        ),
    ),
    *STARTS.edits(
        (
            "H2: a start that is known is written again",
            "        return [one for one in partitions if self._known(topic, one) is None]\n",
            "        return partitions\n",
        ),
        (
            "H2: a start that could not be written counts as written",
            "                raise  # no other service was faster: our record is refused\n",
            "                pass\n",
        ),
    ),
    *KEEPER.edits(
        (
            "H14: nothing is kept before the settings were read",
            "        if not self._settings.is_ready:\n            return\n        for record",
            "        if self._settings.is_ready:\n            return\n        for record",
        ),
        (
            "H39: a topic recreated under its name is kept",
            "        if record is None or topic.topic_id != topic_id:\n",
            "        if record is None:\n",
        ),
        (
            "H14: a retention that came back is no alarm",
            "        if bounds and not is_half_done:\n",
            "        if not bounds and not is_half_done:\n",
        ),
        (
            "H14: the setting `warn` is not heeded",
            "return self._takeover == ENFORCE and not self._is_given_up(record.name)",
            "return not self._is_given_up(record.name)",
        ),
        (
            "H14: what a crash left half-done stays so where the setting is `warn`",
            "        if is_half_done or not is_taken_over(record):\n",
            "        if not is_taken_over(record):\n",
        ),
        (
            "an alarm of what was long mended stays",
            "now_ms - known.seen_at_ms > _ALARM_KEPT_MS",
            "now_ms - known.seen_at_ms > 1_000 * _ALARM_KEPT_MS",
        ),
    ),
    *RULES.edits(
        (
            "H35: a compacted topic may be enabled",
            '    if policy != "delete":\n',
            '    if "delete" not in policy:\n',
        ),
        (
            "our own topics may be enabled",
            "_OUR_OWN = (LEDGER_TOPIC, SETTINGS_TOPIC)\n",
            "_OUR_OWN = ()\n",
        ),
        (
            "a topic that Kafka tiers may be enabled",
            'if value_of(config, "remote.storage.enable") == "true":',
            'if value_of(config, "remote.storage.enable") == "yes":',
        ),
        (
            "what was chosen before is forgotten with the next change",
            "    if before is None:\n        total_ms",
            "    if before is None or asked:\n        total_ms",
        ),
    ),
    *FREEZES.edits(
        (
            "H39: a former topic cannot be frozen while another one has its name",
            "            if str(record.topic_id) == topic:\n",
            "            if not topic:\n",
        ),
        (
            "a freeze does not stop the sweep",
            "STOPPED = (STOPS_TRIM, STOPS_DELETE, STOPS_SWEEP)",
            "STOPPED = (STOPS_TRIM, STOPS_DELETE)",
        ),
        (
            "H17: a freeze that was just written cannot be taken away",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n"
            "        if self._settings.view.get(key) is None:\n",
            "        if self._settings.view.get(key) is None:\n",
        ),
        (
            "H39: a topic recreated under its name is frozen in place of the enabled one",
            "        if described.topic_id not in ids:\n",
            "        if not ids and described is None:\n",
        ),
    ),
    VERBS.harmless(
        "who altered the topic meanwhile wrote under a newer leader epoch, or is the other process "
        "of one node, which the lock of the state dir excludes: our record is refused",
        "H14: the record is looked at before the configuration is read",
        "        config = await self._dependencies.broker.topic_config(name)\n"
        "        await "
        "self._dependencies.settings.barrier(self._dependencies.barrier_deadline_ms)\n",
        "        await "
        "self._dependencies.settings.barrier(self._dependencies.barrier_deadline_ms)\n"
        "        config = await self._dependencies.broker.topic_config(name)\n",
    ),
    *REVOCATION.edits(
        (
            "`disable` leaves the trim on",
            'return replace(record, state="kept", trim=False, mode="copy"',
            'return replace(record, state="kept", mode="copy"',
        ),
        (
            "H39: what is to be deleted cannot be kept by its id",
            "return record.is_named(name)",
            "return name == record.name",
        ),
        (
            "the deletion of remote data is revoked when it has begun",
            "        if await self._has_begun(record):\n",
            "        if False:\n",
        ),
        (
            "H17: a stale ledger says whether a deletion has begun",
            "        await asyncio.gather("
            "*(self._ledger.barrier(key, deadline_ms) for key in keys))\n",
            "        del keys, deadline_ms\n",
        ),
        (
            "H7: all is said to be kept where the deletion began meanwhile",
            "await self._has_begun(record) or not before.is_in",
            "not before.is_in",
        ),
        (
            "H7: all is said to be kept where segments have gone meanwhile",
            " or not before.is_in(self._whole(record))\n",
            "\n",
        ),
    ),
    *BROKER_VERSION.edits(
        (
            "a broker of Kafka 3.2 is new enough",
            "_FIRST_OF_3_3 = 1",
            "_FIRST_OF_3_3 = 0",
        ),
    ),
)
