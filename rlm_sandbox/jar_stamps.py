"""Which jars of the cache belong together: a stamp per set, so that no network is asked.

A stamp lists the jars of a set of coordinates with their sizes. This module must not know what the
jars are for.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from rlm_sandbox.files import write_atomically
from rlm_sandbox.maven import Progress, fetch_jars


def cached_jars(
    name: str,
    coordinates: Sequence[str],
    cache: Path,
    *,
    repository: str | None,
    size_mib: int,
    progress: Progress,
    alone: bool = False,
) -> tuple[Path, ...]:
    """The jars of `coordinates` out of the cache, fetched once where they are not in it whole.

    `name` is shown and names the stamp, as in `kafka-4.3.0`; `size_mib` is what a download takes at
    most; `alone`: without what the jars need. Raises SandboxError with one line.
    """
    stamp = cache / "stamps" / f"{name}.json"
    jars = _stamped_jars(stamp, coordinates, cache)
    if not jars:
        progress(f"{name} is fetched once, at most {size_mib} MiB, into {cache}")
        jars = fetch_jars(coordinates, cache / "maven", repository, progress, alone=alone)
        _write_stamp(stamp, coordinates, cache, jars)
    return jars


def _stamped_jars(stamp: Path, coordinates: Sequence[str], cache: Path) -> tuple[Path, ...]:
    """The jars the stamp lists, if it is for these coordinates and each has its size; else ()."""
    try:
        content = json.loads(stamp.read_text(encoding="utf-8"))
        if content["coordinates"] != list(coordinates):
            return ()
        jars = [(cache / name, int(size)) for name, size in content["jars"].items()]
        whole = all(jar.stat().st_size == size for jar, size in jars)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    return tuple(jar for jar, _ in jars) if whole else ()


def _write_stamp(
    stamp: Path, coordinates: Sequence[str], cache: Path, jars: tuple[Path, ...]
) -> None:
    sizes = {jar.relative_to(cache).as_posix(): jar.stat().st_size for jar in jars}
    content = {"v": 1, "coordinates": list(coordinates), "jars": sizes}
    stamp.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(stamp, json.dumps(content, indent=1))
