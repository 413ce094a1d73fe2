"""Planted bugs in accepting a retention that somebody else has set (H14)."""

from tests.mutants.edits import Edit, Target

_TESTS = ("tests/rlm/topics/test_h14_accept_retention.py",)
ACCEPTANCE = Target("rlm/topics/acceptance.py", _TESTS)
TAKEOVER = Target("rlm/topics/takeover.py", _TESTS)
VERBS = Target("rlm/topics/verbs.py", _TESTS)

EDITS: tuple[Edit, ...] = (
    *VERBS.edits(
        (
            "H14: accepting a retention enables a topic that was disabled meanwhile",
            "        if seen.record is None or not is_taken_over(seen.record):\n",
            "        if seen.record is None:\n",
        ),
    ),
    *ACCEPTANCE.edits(
        (
            "H14: another retention than the one that was shown is accepted",
            "        if plan.change.wanted != wanted:\n",
            "        if plan.change.wanted is None:\n",
        ),
        (
            "H14: what makes data deletable is accepted without a confirmation",
            "name, EnableOptions(by=by, retention=offer.options, yes=yes)",
            "name, EnableOptions(by=by, retention=offer.options, yes=True)",
        ),
        (
            "H14: a line is written of what is refused",
            "        if plan.deletable and not yes:\n",
            "        if plan.deletable and yes is None:\n",
        ),
        (
            "nobody knows who accepted a retention",
            "        await self._audit.retention_accepted(offer.record, by=by, retention=wanted)\n",
            "",
        ),
        (
            "the alarm stays although its retention was accepted",
            "            self._alarms.forget(offer.record.topic_id)\n",
            "            pass\n",
        ),
        (
            "H14: what was set back already cannot be accepted",
            "(alarm.limits if alarm is not None else {})",
            "{}",
        ),
        (
            "a local retention beyond the total one prevents the acceptance",
            "(present == UNLIMITED or present > total)",
            "present == UNLIMITED",
        ),
        (
            "a local retention without a limit prevents the acceptance",
            "(present == UNLIMITED or present > total)",
            "present > total",
        ),
        (
            "H14: the retention of a topic in mode copy is accepted",
            "        if not is_taken_over(record):\n",
            "        if record.state is None:\n",
        ),
    ),
    *TAKEOVER.edits(
        (
            "H18: a retention that we have given back is accepted as the total one",
            "        and not _is_ours(record, name, _own(config, name))\n    }\n\n\ndef _own",
            "    }\n\n\ndef _own",
        ),
    ),
)
