"""Planted bugs in what keeps an older version from work beside newer formats (H6)."""

from tests.mutants.edits import Edit, Target

_PLAN, _GATE = "tests/rlm/plans/test_h06_formats.py", "tests/rlm/service/test_h06_formats.py"
FORMATS = Target("rlmm/formats.py", (_PLAN,))
PLAN = Target("rlm/plans/formats.py", (_PLAN,))
GATE = Target("rlm/service/formats.py", (_GATE,))
HEARTBEAT = Target("rlm/service/heartbeat.py", ("tests/rlm/test_heartbeat.py",))
COMMAND = Target("rlm/service/store_command.py", (_GATE,))
LIFETIME = Target("rlm/service/lifetime.py", (_GATE,))
VIEW = Target("rlmm/settings_view.py", (_PLAN, _GATE))
MANAGER = Target("rlmm/manager.py", (_GATE,))
CODEC = Target("rlmm/settings_codec.py", (_PLAN, _GATE))
RECORDS = Target("rlmm/records.py", (_GATE,))

EDITS: tuple[Edit, ...] = (
    *HEARTBEAT.edits(
        (
            "H6: a version one step back forgets what a later one has written",
            "formats=self._formats.with_written(self._written_before()),",
            "formats=self._formats,",
        ),
    ),
    *FORMATS.edits(
        (
            "H6: a format that is not known here counts as read",
            "if number > self.reads.get(name, 0))",
            "if number > self.reads.get(name, number))",
        ),
        (
            "H6: what a heartbeat says of formats is lost",
            '    found = document.get("formats")\n',
            '    found = document.get("formates")\n',
        ),
    ),
    *PLAN.edits(
        (
            "H6: readers of a later version are not asked",
            "        *(record for record, _ in view.readers()),\n",
            "",
        ),
        (
            "H6: a settings record of a newer format stops no start",
            "    record = view.newer_format or ledger\n",
            "    record = ledger\n",
        ),
        (
            "H6: a ledger record of a newer format stops no start",
            "    record = view.newer_format or ledger\n",
            "    record = view.newer_format\n",
        ),
    ),
    *GATE.edits(
        (
            "H6: work begins, and a heartbeat replaces that of a later version, before the check",
            "            await self._open.wait()\n",
            "            await asyncio.sleep(0)\n",
        ),
        (
            "H6: a service works although it cannot read what is there",
            "        if why is not None:\n",
            "        if why is None:\n",
        ),
        (
            "H6: the check does not wait until all is read",
            "        await self._metadata.log.wait_ready()\n",
            "",
        ),
    ),
    *COMMAND.edits(
        (
            "H6: `rlm ledger rebuild` writes beside newer formats",
            "            await gate.check()\n",
            "            _ = gate\n",
        ),
    ),
    *LIFETIME.edits(
        (
            "H6: nobody checks the formats",
            "        group.create_task(check())\n",
            "        _ = check\n",
        ),
    ),
    *VIEW.edits(
        (
            "H6: a newer format in the settings counts as damage",
            "            if isinstance(error, NewerFormat):\n",
            "            if isinstance(error, KeyError):\n",
        ),
        (
            "a newer format that is over stops every start",
            "        self._newer.discard(name)\n",
            "",
        ),
    ),
    *MANAGER.edits(
        (
            "H6: a newer format in the ledger counts as damage",
            "                self._newer.add(raw_key)\n",
            "                pass\n",
        ),
        (
            "a newer format that is over stops every start",
            "            self._newer.discard(raw_key)\n            if",
            "            if",
        ),
    ),
    *CODEC.edits(
        (
            "H6: a newer version of a settings record counts as damage",
            "type(version) is int and version > FORMAT_VERSION",
            "type(version) is str",
        ),
        (
            "damage counts as a newer version",
            "    kind = NewerFormat if is_newer else Corrupt\n",
            "    kind = NewerFormat\n",
        ),
    ),
    *RECORDS.edits(
        (
            "H6: a newer version of a ledger record counts as damage",
            "NewerFormat if version > LAYOUT_VERSION else Corrupt",
            "NewerFormat if version < 0 else Corrupt",
        ),
    ),
)
