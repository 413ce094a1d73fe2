"""What the console can do for its user: calls of the API that begin, undo or stop something, as
lines of JSON values. None of them deletes data.

An action runs as long as its request: it ends when the page is closed, as a command does when it is
interrupted. This module must not know HTTP.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

from kip405.errors import Busy, Invalid
from kip405.topic_names import checked_name
from rlm.api.local_calls import LocalCaller
from rlm.api.local_commands import LocalCommands
from rlm.console.paging import INT32_MAX, INT64_MAX, Row
from rlm.v1 import admin_pb2 as pb

RUNNING_MAX: Final = 8
"""Copies and verifications of this service, each of which holds a connection; and as many others,
so that no copy keeps a freeze or an undo waiting.
"""
_LONG: Final = frozenset({"copy", "verify"})
WHY_MAX: Final = 500

Lines = AsyncGenerator[Row, None]


class Fields:
    """The body of a request. All of these raise Invalid where a value is not what it must be."""

    def __init__(self, values: object) -> None:
        if not isinstance(values, dict):
            raise Invalid("the body of an action is a JSON object")
        self._values: Mapping[str, Any] = values

    def topic(self) -> str:
        """The topic, which must be named: none of the actions is for all topics."""
        return checked_name(self.text("topic", 249))

    def text(self, name: str, most: int) -> str:
        """A text that must be there."""
        found = self._values.get(name)
        if not isinstance(found, str) or not 0 < len(found.strip()) <= most:
            raise Invalid(f"{name}: a text of 1 to {most} characters")
        try:
            found.encode()
        except UnicodeEncodeError as error:
            raise Invalid(f"{name}: half a character") from error
        return found.strip()

    def number(self, name: str, most: int = INT32_MAX) -> int | None:
        """A number, not negative; None where it is left out, which has a meaning: null is none, as
        it is what JavaScript makes of numbers that JSON does not have.
        """
        if name not in self._values:
            return None
        found = self._values[name]
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= most:
            raise Invalid(f"{name}: a whole number of 0 to {most}")
        return found


class ConsoleActions:
    """All of them raise CallRefused where the API refuses, and Invalid for a wrong request."""

    def __init__(self, commands: LocalCommands) -> None:
        self._commands = commands
        self._running = {True: 0, False: 0}
        self._actions: Mapping[str, Callable[[Fields, LocalCaller], Lines]] = {
            "copy": self._copy,
            "verify": self._verify,
            "copy-limit": self._copy_limit,
            "undo": self._undo,
            "freeze": self._freeze,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Of all actions."""
        return tuple(self._actions)

    async def run(self, name: str, fields: Fields, caller: LocalCaller) -> Lines:
        """One of `names`: what it reports, line by line. Busy: too many are running."""
        is_long = name in _LONG
        if self._running[is_long] >= RUNNING_MAX:
            raise Busy(f"{RUNNING_MAX} actions of the console are running already")
        self._running[is_long] += 1
        try:
            async with aclosing(self._actions[name](fields, caller)) as lines:
                async for line in lines:
                    yield line
        finally:
            self._running[is_long] -= 1

    async def _copy(self, fields: Fields, caller: LocalCaller) -> Lines:
        target = pb.CopyTarget(topic=fields.topic(), partition=fields.number("partition"))
        request = pb.CopyClosedRequest(targets=[target])
        async with aclosing(self._commands.copy_closed(request, caller)) as events:
            async for event in events:
                yield _copied(event)

    async def _verify(self, fields: Fields, caller: LocalCaller) -> Lines:
        request = pb.VerifyRequest(topic=fields.topic())
        async with aclosing(self._commands.verify(request, caller)) as events:
            async for event in events:
                yield _verified(event)

    async def _copy_limit(self, fields: Fields, caller: LocalCaller) -> Lines:
        request = pb.SetCopyLimitRequest(bytes_per_second=fields.number("bytes", INT64_MAX))
        found = await self._commands.set_copy_limit(request, caller)
        yield {
            "nodes": [
                {
                    "node_id": row.node_id,
                    "bytes": row.bytes_per_second if row.HasField("bytes_per_second") else None,
                    "problem": row.problem,
                }
                for row in found.nodes
            ]
        }

    async def _undo(self, fields: Fields, caller: LocalCaller) -> Lines:
        request = pb.UndoDeletionRequest(topic=fields.topic(), partition=fields.number("partition"))
        found = await self._commands.undo_deletion(request, caller)
        yield {"topic": found.topic, "state": found.state, "notes": list(found.notes)}

    async def _freeze(self, fields: Fields, caller: LocalCaller) -> Lines:
        request = pb.FreezeRequest(topic=fields.topic(), why=fields.text("why", WHY_MAX))
        await self._commands.freeze(request, caller)
        yield {"topic": request.topic}


def _copied(event: pb.CopyClosedResponse) -> Row:
    if event.HasField("progress"):
        row = event.progress
        return {
            "topic": row.topic,
            "partition": row.partition,
            "doing": row.doing,
            "segments": row.segments,
            "segments_total": row.segments_total,
            "bytes": row.size_bytes,
            "error": row.error,
        }
    done = event.partition
    return {
        "topic": done.topic,
        "partition": done.partition,
        "doing": "done",
        "segments": done.segments,
        "segments_total": done.segments,
        "bytes": done.size_bytes,
        "error": "" if done.complete else done.why,
    }


def _verified(event: pb.VerifyResponse) -> Row:
    kind = event.WhichOneof("event")
    if kind == "progress":
        row = event.progress
        return {
            "node_id": row.node_id,
            "segments": row.segments,
            "segments_total": row.segments_total,
        }
    if kind == "issue":
        issue = event.issue
        return {
            "partition": issue.partition,
            "finding": issue.is_finding,
            "text": issue.text,
            "action": issue.action,
        }
    done = event.partition
    return {
        "partition": done.partition,
        "findings": done.findings,
        "unchecked": list(done.unchecked),
    }
