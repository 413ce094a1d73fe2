"""`python -m build_tools.audit FOLDER | --check`: known weaknesses of everything that is locked.

Recording reads a git repository of advisories on this machine, a clone of pypa/advisory-database
or another with records of the OSV schema, and writes requirements/audit.json: which versions were
asked about, what of them is known, and from which commit and day. Checking needs neither network
nor advisories: it holds the record against the locks, and what was found against ACCEPTED.
"""

import io
import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from build_tools.advisories import Finding, findings, packages_of
from build_tools.locks import AUDIT, PROFILES, lock_path, read_pins

_YAML = (".yaml", ".yml")
_AGAIN = "run make audit ADVISORIES=FOLDER"
_USAGE = (
    "make audit ADVISORIES=FOLDER: a git repository with advisories, such as a clone of "
    "pypa/advisory-database; `git pull` there first"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A known weakness of a locked package; `reason` says why it does not reach us."""

    package: str
    reason: str


ACCEPTED: Mapping[str, Accepted] = {}
"""By id or alias. Each goes when no locked version has the weakness any more."""


class NoAdvisories(Exception):
    """The folder is not a git repository with readable advisories."""


def advisories_in(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Every record of the commit that is checked out there. NoAdvisories."""
    archive = io.BytesIO(_git(folder, "archive", "--format=tar", "HEAD"))
    with tarfile.open(fileobj=archive) as files:
        for member in files:
            path = PurePosixPath(member.name)
            if not member.isfile() or path.parts[0].startswith("."):
                continue
            opened = files.extractfile(member)
            value = _parsed(path, opened.read()) if opened is not None else None
            if isinstance(value, dict) and "id" in value and "affected" in value:
                yield value


def _parsed(path: PurePosixPath, content: bytes) -> Any:
    """None for files of another kind. BaseLoader leaves 1.10 the text that it is."""
    try:
        if path.suffix == ".json":
            return json.loads(content)
        if path.suffix in _YAML:
            return yaml.load(content, _LOADER)  # noqa: S506 - it makes texts, lists and maps alone
    except (ValueError, yaml.YAMLError) as error:
        raise NoAdvisories(f"{path} cannot be read: {error}") from error
    return None


_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _git(folder: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NoAdvisories(f"{folder}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def locked() -> list[tuple[str, str]]:
    """Every name and version of all locks, in order."""
    texts = [lock_path(profile).read_text(encoding="utf-8") for profile in PROFILES]
    return sorted({(pin.name, pin.version) for text in texts for pin in read_pins(text)})


def record(folder: Path, pins: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What the advisories of a folder say of the pins. NoAdvisories."""
    pins = list(pins)
    advisories = [one for one in advisories_in(folder) if packages_of(one)]
    if not advisories:
        raise NoAdvisories(f"{folder} has no advisory about a package of PyPI")
    commit, day = _git(folder, "log", "-1", "--format=%H %cs").decode().split()
    families = Counter(one["id"].partition("-")[0] for one in advisories)
    return {
        "v": 1,
        "source": {"commit": commit, "day": day, "advisories": dict(sorted(families.items()))},
        "audited": [f"{name}=={version}" for name, version in pins],
        "findings": [asdict(one) for one in findings(advisories, pins)],
    }


def findings_of(written: Mapping[str, Any]) -> list[Finding]:
    """The findings of a record."""
    return [
        Finding(**{**one, "aliases": tuple(one["aliases"]), "fixed": tuple(one["fixed"])})
        for one in written["findings"]
    ]


def faults(
    written: Mapping[str, Any],
    pins: Iterable[tuple[str, str]],
    accepted: Mapping[str, Accepted] = ACCEPTED,
) -> list[str]:
    """A line for each pin that was not audited, each finding that nobody has accepted, and each
    acceptance of what is not found any more.
    """
    wanted, audited = {f"{name}=={version}" for name, version in pins}, set(written["audited"])
    lines = [f"{one}: locked, and not audited: {_AGAIN}" for one in sorted(wanted - audited)]
    lines += [f"{one}: audited, and in no lock: {_AGAIN}" for one in sorted(audited - wanted)]
    found = findings_of(written)
    lines += [
        f"{one}; upgrade it, or accept it with a reason in build_tools/audit.py"
        for one in found
        if not any(_is_of(id_, accepted[id_], one) for id_ in accepted)
    ]
    return lines + [
        f"{id_}: accepted for {row.package}, and found in no locked version: delete the acceptance"
        for id_, row in accepted.items()
        if not any(_is_of(id_, row, one) for one in found)
    ]


def _is_of(id_: str, accepted: Accepted, found: Finding) -> bool:
    return accepted.package == found.package and id_ in found.ids


def main(arguments: list[str]) -> int:
    """Record and check, or with --check only check; the exit status of the process."""
    if len(arguments) != 1 or not arguments[0]:
        print(_USAGE)
        return 2
    if arguments != ["--check"]:
        try:
            made = record(Path(arguments[0]), locked())
        except NoAdvisories as error:
            print(error)
            return 1
        AUDIT.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        source = made["source"]
        count = sum(source["advisories"].values())
        print(f"{count} advisories of {source['day']}, {len(made['audited'])} locked versions")
        for one in findings_of(made):
            print(one)
    problems = faults(json.loads(AUDIT.read_text(encoding="utf-8")), locked())
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
