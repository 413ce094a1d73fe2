"""`rlm topics enable` for every topic whose whole name matches a pattern.

The patterns are those of rules in the configuration. They are matched here, not in the service: a
regular expression can take for ever.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from kip405.errors import Fenced, Invalid, NotFound
from rlm.cli.main import EXIT_FAILED
from rlm.cli.output import plain, show_json, show_table, warn
from rlm.cli.retention_plans import planned, show_deletable
from rlm.cli.target import Connect, Target
from rlm.v1 import admin_pb2 as pb
from rsm_plugins.contract.status import error_of_call
from rsm_plugins.endpoints import topic_pattern

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(slots=True, kw_only=True)
class _Match:
    """One topic that matches. `left_out`: why it must not be enabled; `error`: why it was not."""

    topic: pb.CandidateTopic
    plan: pb.RetentionPlan
    left_out: str = ""
    error: str = ""
    enabled: pb.TopicDescription | None = None

    @property
    def result(self) -> str:
        """What was done, or is to be done."""
        if self.left_out:
            return f"left out: {self.left_out}"
        if self.error:
            return f"NOT ENABLED: {self.error}"
        if self.enabled is None:
            return "matches"
        return f"enabled, mode {self.enabled.mode}"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "topic": self.topic.topic,
            "left_out": self.left_out,
            "error": self.error,
            "deletable": plain(self.plan)["deletable"],
            "enabled": None if self.enabled is None else plain(self.enabled),
        }


def is_pattern(text: str) -> bool:
    """Whether it cannot be the name of a topic."""
    return _NAME.fullmatch(text) is None


def enable_matching(request: pb.EnableTopicRequest, connect: Connect) -> int:
    """Enable all topics whose name matches `request.topic`, each like a single one; the exit
    status. Fenced, with the matches shown, if there are several or data becomes deletable, and no
    `yes`. Topics that must never be enabled are left out.
    """
    with connect.open() as target:
        found = matching(target, request.topic)
        matches = [_planned(target, request, row) for row in found]
        wanted = [one for one in matches if not one.left_out]
        is_risky = len(wanted) > 1 or any(one.plan.deletable for one in wanted)
        if is_risky and not request.yes:
            _refuse(request.topic, matches, connect)
        for one in wanted:
            _enable(target, request, one)
    _show(matches, connect, applied=True)
    return EXIT_FAILED if any(one.error for one in matches) else 0


def matching(target: Target, text: str) -> list[pb.CandidateTopic]:
    """The topics whose whole name matches a pattern; NotFound without any."""
    pattern = topic_pattern(text)
    candidates = target.ask(target.admin.ListCandidates, pb.ListCandidatesRequest())
    found = [row for row in candidates.topics if pattern.fullmatch(row.topic)]
    if not found:
        raise NotFound(
            f"no topic matches {text}: a pattern is a regular expression that the whole name must "
            "match, such as 'logs-.*'; internal topics never match"
        )
    return found


def _request(request: pb.EnableTopicRequest, topic: str, *, yes: bool) -> pb.EnableTopicRequest:
    single = pb.EnableTopicRequest()
    single.CopyFrom(request)
    single.topic, single.yes = topic, yes
    return single


def _planned(target: Target, request: pb.EnableTopicRequest, row: pb.CandidateTopic) -> _Match:
    try:
        plan = planned(_request(request, row.topic, yes=False), target)
    except grpc.RpcError as failed:
        error = error_of_call(failed, f"service at {target.address}")
        if not isinstance(error, Invalid):
            raise error from failed
        return _Match(topic=row, plan=pb.RetentionPlan(), left_out=str(error))
    return _Match(topic=row, plan=plan)


def _enable(target: Target, request: pb.EnableTopicRequest, one: _Match) -> None:
    """What was not shown as deletable is not confirmed."""
    single = _request(request, one.topic.topic, yes=bool(one.plan.deletable))
    try:
        one.enabled = target.ask(target.admin.EnableTopic, single)
    except grpc.RpcError as failed:
        one.error = str(error_of_call(failed, f"service at {target.address}"))


def _refuse(pattern: str, matches: Iterable[_Match], connect: Connect) -> None:
    _show(matches, connect, applied=False)
    count = sum(not one.left_out for one in matches)
    deletable = (
        " and makes what is shown deletable" if any(one.plan.deletable for one in matches) else ""
    )
    raise Fenced(
        f"nothing was changed: {pattern} matches {count} topics that can be enabled; --yes enables "
        f"them{deletable}"
    )


def _show(matches: Iterable[_Match], connect: Connect, *, applied: bool) -> None:
    if connect.as_json:
        rows = [one.as_json() for one in matches]
        show_json({"applied": applied, "topics": rows})
        return
    show_table(
        ("topic", "before", "result"),
        [
            (
                one.topic.topic,
                " ".join(filter(None, (one.topic.state, one.topic.mode))) or "not enabled",
                one.result,
            )
            for one in matches
        ],
        "",
    )
    show_deletable(one.plan for one in matches)
    for one in matches:
        if one.enabled is not None:
            warn([f"{one.topic.topic}: {text}" for text in one.enabled.warnings])
