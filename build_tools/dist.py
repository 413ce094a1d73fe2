"""`python -m build_tools.dist [OUT] [--wheelhouse PROFILE]`: what a release is made of, in dist/.

Of kafka-rlm and of kafka-rlm-spark a source distribution, and a wheel built from it: so a file that
the source distribution lacks is missed here. The setuptools of this environment builds them, in a
copy of the packages, where the version is that of the git tag; no network is needed. A wheel has
the compiled decoder where this machine has a C compiler, and fits every platform where it has none.

With --wheelhouse a folder `wheelhouse` beside them holds all wheels of a lock for this machine and
this Python, and a requirements.txt with their hashes: pip installs from it without a network.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from build_tools.locks import PROFILES, ROOT
from build_tools.versions import DESCRIBE, version_of
from build_tools.wheel_tags import tagged
from build_tools.wheelhouse import WheelhouseError, fill

OUT = ROOT / "dist"
_WHEELHOUSE = "wheelhouse"
_EVERYWHERE = ("LICENSE", "README.md")
_NEVER = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.egg-info")
_VERSION = re.compile(r'^version = "[^"]*".*$', re.MULTILINE)
_HEADERS = "include rlm_spark/decode/*.h\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What is built: its pyproject.toml, and the files and folders of the tree that it has."""

    name: str
    project: str
    content: tuple[str, ...]


KAFKA_RLM = Distribution(
    name="kafka-rlm",
    project="pyproject.toml",
    content=(
        *("kafka_clients", "kafka_protocol", "kip405", "man", "rlm", "rlm_client"),
        *("rlm_sandbox", "rlm_spark"),
        *("rlmm", "rsm_plugins", "systemd", "tiered_reads"),
    ),
)
KAFKA_RLM_SPARK = Distribution(
    name="kafka-rlm-spark",
    project="build_tools/kafka-rlm-spark.toml",
    content=(
        *("kafka_clients", "kafka_protocol", "kip405", "rlm_spark", "tiered_reads"),
        *("rlm/__init__.py", "rlm/py.typed", "rlm/v1"),
        *("rsm_plugins/__init__.py", "rsm_plugins/py.typed"),
        *("rsm_plugins/contract/__init__.py", "rsm_plugins/contract/status.py"),
        *("rsm_plugins/layout/__init__.py", "rsm_plugins/layout/keys.py"),
    ),
)
DISTRIBUTIONS = (KAFKA_RLM, KAFKA_RLM_SPARK)
_CHANGED = "-dirty"
_UNKNOWN = ("git", "ls-files", "--others", "--exclude-standard", "--", *KAFKA_RLM.content)
"""The command that lists what a distribution would have and no commit has."""


def main(arguments: list[str]) -> int:
    """Build everything; the exit status of the process."""
    match arguments:
        case []:
            out, profile = OUT, None
        case ["--wheelhouse", profile] if profile in PROFILES:
            out = OUT
        case [folder] if not folder.startswith("-"):
            out, profile = Path(folder), None
        case [folder, "--wheelhouse", profile] if profile in PROFILES:
            out = Path(folder)
        case _:
            locks = ", ".join(PROFILES)
            print(f"kafka-rlm: allowed are [OUT] [--wheelhouse LOCK]; locks are {locks}")
            return 2
    try:
        for path in build(out.resolve(), version_here(), profile):
            print(path)
    except (ValueError, WheelhouseError) as error:
        print(f"kafka-rlm: {error}")
        return 1
    return 0


def build(out: Path, version: str, profile: str | None = None) -> Iterator[Path]:
    """The files that were made in `out`, where none of an earlier build stays."""
    clear(out)
    out.mkdir(parents=True, exist_ok=True)
    for one in DISTRIBUTIONS:
        yield from build_one(one, out, version)
    if profile is not None:
        yield fill(out / _WHEELHOUSE, profile, next(out.glob("kafka_rlm-*.whl")))


def clear(out: Path) -> None:
    """Remove what an earlier build has made there, and nothing else: it may be anybody's folder."""
    for ending in (".whl", ".tar.gz"):
        for made in out.glob(f"kafka_rlm*-*{ending}"):
            made.unlink()
    shutil.rmtree(out / _WHEELHOUSE, ignore_errors=True)


def build_one(one: Distribution, out: Path, version: str) -> Iterator[Path]:
    """The source distribution and the wheel of one distribution."""
    with tempfile.TemporaryDirectory(prefix="kafka-rlm-dist-") as folder:
        copy, sources = Path(folder, "copy"), Path(folder, "sources")
        _copy(one, copy, version)
        sdist = out / _call("build_sdist", copy, out)
        with tarfile.open(sdist) as archive:
            archive.extractall(sources, filter="data")
        [unpacked] = sources.iterdir()
        wheel = tagged(out / _call("build_wheel", unpacked, out))
    yield sdist
    yield wheel


def version_here(root: Path = ROOT) -> str:
    """The version of what is built from the tree now. A file that git does not know makes it a
    changed one. ValueError as version_of, and where there is a repository and git says nothing.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    described = _said_by_git(DESCRIBE, root)
    if described and not described.endswith(_CHANGED) and _said_by_git(_UNKNOWN, root):
        described += _CHANGED
    return version_of(described, project["version"])


def _said_by_git(command: Iterable[str], root: Path = ROOT) -> str:
    """What git answers; empty where there is no repository of this tree. ValueError: it fails."""
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run([*command], cwd=root, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"{root} is a repository, and git does not run: {error}") from error
    if done.returncode != 0:
        raise ValueError(f"{root} is a repository, and git fails: {done.stderr.strip()}")
    return done.stdout.strip()


def _copy(one: Distribution, target: Path, version: str) -> None:
    """The files of a distribution, with the version in its pyproject.toml."""
    for name in (*_EVERYWHERE, *one.content):
        source, here = ROOT / name, target / name
        here.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, here, ignore=_NEVER)
        else:
            shutil.copyfile(source, here)
    project = (ROOT / one.project).read_text(encoding="utf-8")
    text = _VERSION.sub(f'version = "{version}"', project, count=1)
    (target / "pyproject.toml").write_text(text, encoding="utf-8")
    folders = [name for name in ("man", "systemd") if name in one.content]
    manifest = _HEADERS + "".join(f"graft {name}\n" for name in folders)
    (target / "MANIFEST.in").write_text(manifest, encoding="utf-8")


def _commit_seconds() -> str:
    """When the commit was made; empty where nobody knows. What is built has its version already."""
    try:
        return _said_by_git(("git", "log", "-1", "--format=%ct"))
    except ValueError:
        return ""


def _call(hook: str, tree: Path, out: Path) -> str:
    """One hook of the build backend, in a process of its own as PEP 517 wants it."""
    code = f"import sys, setuptools.build_meta as b; print(b.{hook}(sys.argv[1]))"
    stamp = _commit_seconds() or "315532800"  # a zip's first day
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", code, str(out)],
        cwd=tree,
        env={"SOURCE_DATE_EPOCH": stamp, **os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(f"{hook} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
