"""Checks of this machine: C library and limits of processes. Pure."""

from collections.abc import Iterator

from rlm.diagnosis.checks import Check, CheckFinding, note, warning
from rlm.diagnosis.observed import Observed
from rlm.log_dir.held_segments import USEFUL_OPEN_FILES

OLDEST_GLIBC = (2, 28)
_GLIBC = "Use a distribution with glibc 2.28 or newer, or the image of docker/."
_FILES = "Raise the limit: LimitNOFILE of the systemd unit, or `ulimits` of the container."


def _c_library(site: Observed) -> Iterator[CheckFinding]:
    """Unknown where the platform is not Linux, which has other C libraries."""
    name, version = site.host.libc
    if not name:
        return
    oldest = ".".join(map(str, OLDEST_GLIBC))
    if name != "glibc":
        yield warning(
            "C library",
            f"it is {name} {version}: memory that reads have freed is not kept for the next ones, "
            "and there are no wheels for it",
            _GLIBC,
        )
    elif _number(version) < OLDEST_GLIBC:
        yield warning(
            "C library",
            f"glibc {version} is older than {oldest}, the oldest that is tested",
            _GLIBC,
        )


def _open_files(site: Observed) -> Iterator[CheckFinding]:
    limit = site.host.open_files
    needed = 2 * site.config.proxy_max_connections
    if limit is not None and limit < needed:
        yield warning(
            "open files",
            f"a process may have {limit} files open, and proxy.max.connections lets so many "
            f"clients in that {needed} are needed: two for each",
            _FILES,
        )
    elif limit is not None and limit < USEFUL_OPEN_FILES:
        yield note(
            "open files",
            f"a process may have {limit} files open; with {USEFUL_OPEN_FILES} it holds more of the "
            "segments that a bounded retention may delete before they are copied",
            _FILES,
        )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


CHECKS = (
    Check(
        name="c-library",
        asks="Is the C library glibc 2.28 or newer, where it is Linux?",
        remedy=_GLIBC,
        decide=_c_library,
    ),
    Check(
        name="open-files",
        asks="May a process have as many files open as clients and held segments need? The limit "
        "is that of this command.",
        remedy=_FILES,
        decide=_open_files,
    ),
)
