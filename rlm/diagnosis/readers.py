"""Checks of who reads trimmed topics where trimmed records are not found (H19). Pure."""

from collections.abc import Iterator

from rlm.diagnosis.checks import Check, CheckFinding, warning
from rlm.diagnosis.observed import Observed, known

_SHARE = (
    "Let share groups read a topic that is not trimmed, or `rlm topics trim T off`: they cannot "
    "read what is only remote."
)
_DIRECT = (
    "Move the clients of the group to the proxies (`rlm clients T` shows its offsets), or delete a "
    "group that nobody uses."
)
_SHOWN = 5


def _share_groups(site: Observed) -> Iterator[CheckFinding]:
    for topic, readers in known(site.readers).items():
        if readers.share_starts:
            starts = [
                f"{topic}-{at} at {start}" for at, start in sorted(readers.share_starts.items())
            ]
            yield warning(
                f"topic {topic}",
                f"share groups read it, and it is trimmed: no trim passes them ({_some(starts)})",
                _SHARE,
            )


def _direct_groups(site: Observed) -> Iterator[CheckFinding]:
    service = None if site.service is None else known(site.service)
    for topic, groups in () if service is None else service.direct_groups.items():
        unseen = sorted(known(groups))
        if unseen:
            yield warning(
                f"topic {topic}",
                "groups have committed offsets of it, and no proxy has seen them read it since the "
                "services began: they read past the proxies, where trimmed records are not found, "
                f"or nothing ({_some(unseen)})",
                _DIRECT,
            )


def _some(items: list[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


CHECKS = (
    Check(
        name="share-groups",
        asks="Does a share group read a topic that is trimmed?",
        remedy=_SHARE,
        decide=_share_groups,
    ),
    Check(
        name="direct-groups",
        asks="Does a group read a topic that is trimmed past the proxies? The running services "
        "know who reads through them.",
        remedy=_DIRECT,
        decide=_direct_groups,
    ),
)
