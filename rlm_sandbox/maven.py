"""Jars from a Maven repository through jgo, kept in a cache and safe against broken downloads.

jgo resolves the dependency graph; its own download writes straight to the final name, so that a cut
connection would leave half a jar that looks whole. Here a file is written to `.part`, continued
with a Range request after a break, checked against its SHA-1 and renamed. A stamp lists the jars of
a set of coordinates with their sizes: a sandbox that finds all of them in its cache asks no network
and imports neither jgo nor requests. This module must not know what the jars are for.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_sandbox.files import one_at_a_time, write_atomically
from rlm_sandbox.spec import SandboxError

if TYPE_CHECKING:
    from jgo.maven import MavenContext

Progress = Callable[[str], None]
"""Receives one short line of what is going on."""

_DOWNLOADERS = 6
_TRIES = 4
_PROGRESS_EVERY = 10
_TIMEOUT_S = 30
_CHUNK_BYTES = 1 << 16

# Version 1.7.36 is only a pom that names reload4j's binding instead.
_WITHOUT_A_JAR = frozenset({"slf4j-log4j12"})
_RELOAD4J = (
    ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ("ch.qos.reload4j", "reload4j", "1.2.25"),
)


class _Damaged(Exception):
    """A file that is not what the repository says it is."""


def fetch_jars(
    coordinates: Iterable[str],
    cache: Path,
    repository: str | None,
    progress: Progress,
    *,
    alone: bool = False,
) -> tuple[Path, ...]:
    """Paths of the jars of `coordinates` and all they need at run time, downloaded where missing.

    `alone`: these jars only. `repository` is the URL of a mirror (default: Maven Central). Raises
    SandboxError with one line.
    """
    try:
        import requests

        context = _context(cache, repository)
    except ImportError:
        raise SandboxError(
            "jars are downloaded with jgo, which is not installed: pip install 'kafka-rlm[sandbox]'"
        ) from None
    try:
        progress("resolving dependencies")
        artifacts = (_alone if alone else _resolve)(context, coordinates)
        return _download_all(artifacts, progress)
    except (requests.RequestException, OSError) as error:
        raise SandboxError(
            f"{_named(coordinates)}: the jars are not in the cache and the Maven repository cannot "
            "be reached: set RLM_MAVEN_REPO to a mirror, or for Kafka give --kafka-home DIR "
            f"({_cause(error)})"
        ) from error
    except (RuntimeError, _Damaged) as error:
        raise SandboxError(
            f"the jars of {_named(coordinates)} cannot be resolved: {_cause(error)}"
        ) from error


def _named(coordinates: Iterable[str]) -> str:
    """The first of the coordinates, as a name for the jars."""
    return next(iter(coordinates), "nothing")


def _context(cache: Path, repository: str | None) -> "MavenContext":
    from jgo.maven import MavenContext, PythonResolver

    class ResumingResolver(PythonResolver):
        """jgo's resolver with downloads that are whole or not there."""

        def download(self, artifact: Any) -> Path:
            target = artifact.cached_path
            prefix = artifact.component.path_prefix.as_posix()
            for base in artifact.context.remote_repos.values():
                _download(f"{base.rstrip('/')}/{prefix}/{artifact.filename}", target)
            return Path(target)

    return MavenContext(
        resolver=ResumingResolver(),
        repo_cache=cache,
        remote_repos={"mirror": repository} if repository else None,
        timeout=_TIMEOUT_S,
    )


def _resolve(context: "MavenContext", coordinates: Iterable[str]) -> list[Any]:
    from jgo.parse import Coordinate

    wanted = [
        context.create_dependency(replace(Coordinate.parse(text), scope="compile"))
        for text in coordinates
    ]
    direct, transitive = context.resolver.resolve(wanted)
    needed = [dep for dep in transitive if dep.scope in ("compile", "runtime")]
    artifacts = [dep.artifact for dep in (*direct, *needed)]
    whole = [item for item in artifacts if item.artifactId not in _WITHOUT_A_JAR]
    return whole + _logging_binding(context, whole)


def _alone(context: "MavenContext", coordinates: Iterable[str]) -> list[Any]:
    from jgo.parse import Coordinate

    return [context.create_dependency(Coordinate.parse(text)).artifact for text in coordinates]


def _logging_binding(context: "MavenContext", artifacts: list[Any]) -> list[Any]:
    """The SLF4J binding, which Kafka's pom leaves to the distribution: log4j 2 since Kafka 4.0,
    reload4j before.

    Taken alone and in log4j-core's version: resolved with the rest, log4j's parent pom would
    change the versions of jackson and zstd that Kafka was built with.
    """
    cores = [item for item in artifacts if item.artifactId == "log4j-core"]
    names = {item.artifactId for item in artifacts}
    if cores:
        needed = [(core.groupId, "log4j-slf4j-impl", core.version) for core in cores]
    else:
        needed = [row for row in _RELOAD4J if row[1] not in names and "kafka-clients" in names]
    return [
        context.project(group, name).at_version(version).artifact()
        for group, name, version in needed
    ]


def _download_all(artifacts: list[Any], progress: Progress) -> tuple[Path, ...]:
    paths: dict[int, Path] = {}
    with ThreadPoolExecutor(max_workers=_DOWNLOADERS) as pool:
        running = {pool.submit(item.resolve): at for at, item in enumerate(artifacts)}
        for done, future in enumerate(as_completed(running), start=1):
            paths[running[future]] = Path(future.result())
            if done % _PROGRESS_EVERY == 0 or done == len(artifacts):
                progress(f"jars: {done} of {len(artifacts)}")
    return tuple(paths[at] for at in sorted(paths))


def _download(url: str, target: Path) -> None:
    import requests

    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    for attempt in range(1, _TRIES + 1):
        try:
            _continue_download(url, part)
            _check_sha1(url, part)
            part.replace(target)
            return
        except requests.HTTPError as error:
            raise RuntimeError(f"{target.name}: {error}") from error
        except (requests.RequestException, _Damaged):
            if attempt == _TRIES:
                raise


def _continue_download(url: str, part: Path) -> None:
    import requests

    have_bytes = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have_bytes}-"} if have_bytes else {}
    with requests.get(url, stream=True, timeout=_TIMEOUT_S, headers=headers) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            return
        response.raise_for_status()
        resumed = response.status_code == requests.codes.partial_content
        with part.open("ab" if resumed else "wb") as file:
            for chunk in response.iter_content(_CHUNK_BYTES):
                file.write(chunk)


def _check_sha1(url: str, part: Path) -> None:
    """Compare with the repository's `.sha1`; a wrong file is removed, a missing `.sha1` passes."""
    import requests

    answer = requests.get(f"{url}.sha1", timeout=_TIMEOUT_S)
    if answer.status_code == requests.codes.not_found:
        return
    answer.raise_for_status()
    expected = answer.text.split()[0].strip().lower()
    digest = hashlib.sha1(part.read_bytes(), usedforsecurity=False)
    if digest.hexdigest() != expected:
        part.unlink()
        raise _Damaged(f"{part.name}: SHA-1 differs from the repository's")


def _cause(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


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
    most; `alone`: without what the jars need. One process downloads at a time, of all that share
    the cache: sets of jars have files in common. Raises SandboxError with one line.
    """
    stamp = cache / "stamps" / f"{name}.json"
    jars = _stamped_jars(stamp, coordinates, cache)
    if jars:
        return jars
    progress(f"{name} is fetched once, at most {size_mib} MiB, into {cache}")
    try:
        with one_at_a_time(cache / "maven"):
            jars = _stamped_jars(stamp, coordinates, cache)
            if not jars:
                jars = fetch_jars(coordinates, cache / "maven", repository, progress, alone=alone)
                _write_stamp(stamp, coordinates, cache, jars)
    except OSError as error:
        raise SandboxError(f"{name} cannot be kept in {cache}: {_cause(error)}") from error
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
