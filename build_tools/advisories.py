"""Known weaknesses of packages, and which versions have them. Pure.

An advisory is a record of the OSV schema, of which this reads id, aliases, withdrawn and what is
said of packages of PyPI. Versions compare by PEP 440. Where an advisory names a package and nothing
of it can be compared (commits alone, versions of another kind), every version counts as affected,
until somebody has read it. This module must not read files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

_ECOSYSTEM = "PyPI"
_FIRST = "0"
"""As `introduced` it lies before every version, also those that PEP 440 orders before 0."""

_ORDER = {"fixed": 0, "introduced": 1, "last_affected": 2}
"""Of events of one version: who is introduced and last affected by it is affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An advisory that affects a locked version; `fixed`: the versions that correct it."""

    package: str
    version: str
    id: str
    aliases: tuple[str, ...]
    fixed: tuple[str, ...]

    @property
    def ids(self) -> frozenset[str]:
        """Every name of the weakness."""
        return frozenset((self.id, *self.aliases))

    def __str__(self) -> str:
        also = f" ({', '.join(self.aliases)})" if self.aliases else ""
        fixed = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no version corrects it"
        return f"{self.package}=={self.version}: {self.id}{also}, {fixed}"


def packages_of(advisory: Mapping[str, Any]) -> frozenset[str]:
    """The packages of PyPI that an advisory names."""
    return frozenset(canonicalize_name(one["package"]["name"]) for one in _affected(advisory))


def findings(
    advisories: Iterable[Mapping[str, Any]], locked: Iterable[tuple[str, str]]
) -> list[Finding]:
    """What affects the locked names and versions, in order; withdrawn advisories affect nothing.
    Several records of one weakness are several findings.
    """
    versions: dict[str, set[str]] = {}
    for name, version in locked:
        versions.setdefault(name, set()).add(version)
    found = [
        _finding(advisory, name, version)
        for advisory in advisories
        if not _is_withdrawn(advisory)
        for name in sorted(packages_of(advisory) & versions.keys())
        for version in sorted(versions[name])
        if is_affected(advisory, name, version)
    ]
    return sorted(found, key=lambda one: (one.package, one.version, one.id))


def is_affected(advisory: Mapping[str, Any], name: str, version: str) -> bool:
    """Whether a version of a package has the weakness, as the OSV schema decides it."""
    asked = Version(version)
    return any(_has(one, asked) for one in _of_package(advisory, name))


def _is_withdrawn(advisory: Mapping[str, Any]) -> bool:
    """Since a time; the text `null` is none."""
    return str(advisory.get("withdrawn"))[:1].isdigit()


def _affected(advisory: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = advisory.get("affected") or ()
    return [one for one in rows if one.get("package", {}).get("ecosystem") == _ECOSYSTEM]


def _of_package(advisory: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [one for one in _affected(advisory) if canonicalize_name(one["package"]["name"]) == name]


def _finding(advisory: Mapping[str, Any], name: str, version: str) -> Finding:
    fixed = {
        str(event["fixed"])
        for one in _of_package(advisory, name)
        for events in _ranges(one)
        for event in events
        if "fixed" in event
    }
    return Finding(
        package=name,
        version=version,
        id=advisory["id"],
        aliases=tuple(sorted(advisory.get("aliases") or ())),
        fixed=tuple(sorted(fixed, key=_sortable)),
    )


def _ranges(affected: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    rows = affected.get("ranges") or ()
    return [list(one.get("events") or ()) for one in rows if one.get("type") == "ECOSYSTEM"]


def _has(affected: Mapping[str, Any], asked: Version) -> bool:
    named, ranges = affected.get("versions") or (), _ranges(affected)
    if any(_parsed(one) == asked for one in named):
        return True
    if not ranges:
        return not named
    return any(_is_in(events, asked) for events in ranges)


def _is_in(events: list[Mapping[str, Any]], asked: Version) -> bool:
    """The last event at or before the version decides; `limit` is the end of what is known."""
    limits = [str(event["limit"]) for event in events if "limit" in event]
    points = [(kind, str(event[kind])) for event in events for kind in _ORDER.keys() & event.keys()]
    if not points:
        return True
    try:
        if limits and not any(one == "*" or asked < Version(one) for one in limits):
            return False
        ordered = sorted(points, key=lambda one: (_place(one[1]), _ORDER[one[0]]))
        is_inside = False
        for kind, at in ordered:
            if kind == "introduced" and (at == _FIRST or asked >= Version(at)):
                is_inside = True
            elif (kind == "fixed" and asked >= Version(at)) or (
                kind == "last_affected" and asked > Version(at)
            ):
                is_inside = False
    except InvalidVersion:
        return True
    return is_inside


def _place(version: str) -> tuple[bool, Version]:
    return version != _FIRST, Version(version)


def _parsed(version: object) -> Version | None:
    try:
        return Version(str(version))
    except InvalidVersion:
        return None


def _sortable(version: str) -> tuple[bool, Version, str]:
    parsed = _parsed(version)
    return parsed is None, parsed or Version(_FIRST), version
