"""`python -m build_tools.install demo [STORE] | all`: .venv, holding exactly what a lock says.

Says the size before it downloads, shows progress, keeps what was downloaded, and does nothing when
the stamp of the lock is already there. Standard library only; pip does the work, so its own
variables (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT, ...) mean what they always mean.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

from build_tools import native
from build_tools.locks import (
    DEMO_PROFILES,
    PROFILES,
    ROOT,
    WITHOUT_WHEEL,
    download_mb,
    lock_path,
    read_pins,
)

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
# What the demo fetches later, by itself, as it says when it does: Kafka's jars, and the store's
# server. Named here so that the size is said before anything is downloaded.
FETCHED_LATER = {
    "demo": "about 70 MB of Kafka itself",
    "demo-s3": (
        "about 70 MB of Kafka itself and 110 MB of Go modules for the S3 server"
        " (75 MB more where there is no Go), which is built in some minutes"
    ),
    "demo-hdfs": "about 70 MB of Kafka itself and 80 MB of Hadoop",
    "demo-spark": "about 70 MB of Kafka itself",
}
UNREACHABLE = re.compile(
    r"connection broken|NewConnectionError|Temporary failure|Name or service not known"
    r"|from versions: none|Network is unreachable|ConnectTimeout|ProxyError|Max retries exceeded",
    re.IGNORECASE,
)


class InstallError(Exception):
    """Setting up failed; the message is the one line to show."""


def say(line: str) -> None:
    """Print one line."""
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    """Install what the arguments name; the exit status of the process."""
    profile = profile_of(arguments)
    if profile is None:
        given = " ".join(arguments) or "nothing"
        say(
            f"kafka-rlm: {given}: allowed are all and demo [local | s3 | hdfs] (make demo STORE=s3)"
        )
        return 2
    try:
        install(profile)
    except InstallError as error:
        say(f"kafka-rlm: {error}")
        return 1
    except KeyboardInterrupt:
        say("kafka-rlm: interrupted; what was downloaded is kept, run it again to go on")
        return 130
    return 0


def profile_of(arguments: list[str]) -> str | None:
    """The profile that the arguments mean; a demo with a store needs that store's library too."""
    match arguments:
        case ["all"]:
            return "all"
        case ["demo"] | ["demo", "local"]:
            return "demo"
        case ["demo", store] if (profile := f"demo-{store}") in DEMO_PROFILES:
            return profile
    return None


def install(profile: str) -> None:
    """Bring .venv to the state the profile's lock names; instant when it is there already."""
    prepared = venv_fits()
    if prepared and any(stamp_is_current(name) for name in holders(profile)):
        if not native.is_current():
            install_project()
        return
    announce(profile)
    if not prepared:
        create_venv()
    install_lock("bootstrap")
    install_lock(profile)
    install_project()
    write_stamp(profile)
    say("ready: .venv/bin/rlm, .venv/bin/rsm-plugin")


def holders(profile: str) -> set[str]:
    """The profiles that hold all of this one."""
    return {profile, "all", *(DEMO_PROFILES if profile == "demo" else ())}


def expected_mb(profile: str) -> int | None:
    """Megabytes that the profile downloads on this machine, if they were measured."""
    return download_mb(profile, f"{platform.system().lower()}_{platform.machine()}")


def announce(profile: str) -> None:
    """Say what will be downloaded, before it is."""
    size = expected_mb(profile)
    count = len(read_pins(lock_path(profile).read_text(encoding="utf-8")))
    much = "an unmeasured amount" if size is None else f"about {size} MB"
    later = f", then {FETCHED_LATER[profile]}" if profile in FETCHED_LATER else ""
    say(f"setting up .venv: {much} to download ({count} packages){later}; less what is cached")


def venv_fits() -> bool:
    """Whether .venv has a working interpreter of the minor version that runs this."""
    check = f"import sys, pip; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    try:
        return (
            subprocess.run([VENV_PYTHON, "-c", check], capture_output=True, check=False).returncode
            == 0
        )
    except OSError:
        return False


def create_venv() -> None:
    """Make a new .venv; without ensurepip (some distributions) the finder's own pip fills it."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        raise InstallError(".venv is damaged: remove it (make clean) and run this again")
    with_pip = importlib.util.find_spec("ensurepip") is not None
    try:
        venv.EnvBuilder(clear=True, symlinks=True, with_pip=with_pip).create(VENV)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallError(f"cannot create .venv with {sys.executable}: {error}") from error
    if with_pip:
        return
    if importlib.util.find_spec("pip") is None:
        raise InstallError(
            f"{sys.executable} has neither ensurepip nor pip: install its -venv package"
        )
    run_pip(
        [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)],
        ["install", "--quiet", "--require-hashes", "-r", str(lock_path("bootstrap"))],
        what="pip",
    )


def install_lock(profile: str) -> None:
    """Install a lock into .venv: exact versions, checked hashes, wheels but for the exceptions."""
    options = ["--require-hashes", "--no-deps", "--no-build-isolation", "--only-binary", ":all:"]
    if profile == "bootstrap":
        shown = ["--quiet"]
    else:
        shown = ["--progress-bar", "raw", "--resume-retries", "5"]
        for name in WITHOUT_WHEEL:
            options += ["--no-binary", name]
    run_pip(
        [str(VENV_PYTHON), "-m", "pip"],
        ["install", *shown, *options, "-r", str(lock_path(profile))],
        what=f"requirements/{profile}.txt",
    )


def install_project() -> None:
    """Install this tree itself, editable, with the build backend of the lock and no network."""
    native.remove()
    run_pip(
        [str(VENV_PYTHON), "-m", "pip"],
        ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
        what="kafka-rlm itself",
    )
    native.write_stamp()
    if not native.is_built():
        say("no C compiler, or not Python's headers: rlm_spark decodes in Python, more slowly")


def run_pip(pip: list[str], command: list[str], *, what: str) -> None:
    """Run pip with progress; InstallError of one line when it fails. Its words go to a log."""
    environment = {"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **os.environ}
    environment |= {"PYTHONUNBUFFERED": "1", "PIP_NO_INPUT": "1"}
    process = subprocess.Popen(
        [*pip, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    with process:
        lines = list(show_progress(process.stdout))
    LOG.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if process.returncode != 0:
        raise InstallError(explain(lines, what))


def show_progress(output: Iterable[str]) -> Iterator[str]:
    """Pip's lines, passed on while one line of progress is kept on the terminal."""
    tty = sys.stdout.isatty()
    done_bytes = current = said_mb = 0
    name = phase = ""
    for line in (raw.strip() for raw in output):
        if matched := re.fullmatch(r"Progress (\d+) of (\d+)", line):
            current = int(matched[1])
            if matched[1] == matched[2]:
                done_bytes, current = done_bytes + current, 0
        elif matched := re.match(r"(?:Downloading|Using cached) ([^-]+)-", line):
            name = matched[1]
        elif line.startswith("Installing collected") and name and not phase:
            phase = "installing"
            say_progress(phase, tty=tty)
        mb = (done_bytes + current) // 1_000_000
        if name and (mb > said_mb if tty else mb >= said_mb + 25):
            said_mb = mb
            say_progress(f"downloaded {mb} MB ({name})", tty=tty)
        if not line.startswith("Progress "):
            yield line
    if tty and name:
        say("")


def say_progress(text: str, *, tty: bool) -> None:
    """Progress in place on a terminal, as a line of its own elsewhere."""
    if tty:
        print(f"\r\x1b[K  {text}", end="", flush=True)
    else:
        say(f"  {text}")


def explain(lines: list[str], what: str) -> str:
    """Why pip failed, in one line: the network, or pip's own last error."""
    if any(UNREACHABLE.search(line) for line in lines):
        return (
            f"no package index within reach, so {what} cannot be installed: connect, or name a "
            "mirror with PIP_INDEX_URL or PIP_FIND_LINKS, and run this again "
            "(what was downloaded is kept)"
        )
    errors = [line for line in lines if line.startswith(("ERROR", "error"))]
    last = errors[-1] if errors else "pip gave no reason"
    return f"cannot install {what}: {last} (all of pip's words: .venv/install.log)"


def stamp_path(profile: str) -> Path:
    """The file that says that a profile is installed."""
    return VENV / f"installed-{profile}"


def stamp_text(profile: str) -> str:
    """The content of a valid stamp: a digest of the lock and of the files that an install reads."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    relevant = [project["build-system"], project["project"], project["tool"]["setuptools"]]
    digest = hashlib.sha256(lock_path(profile).read_bytes())
    digest.update(json.dumps([*relevant, str(ROOT)], sort_keys=True).encode())
    return f"{digest.hexdigest()}\n"


def stamp_is_current(profile: str) -> bool:
    """Whether the profile is installed as its lock says."""
    try:
        return stamp_path(profile).read_text(encoding="utf-8") == stamp_text(profile)
    except OSError:
        return False


def write_stamp(profile: str) -> None:
    """Say that the profile is installed; an older lock's other profile no longer is."""
    for other in set(PROFILES) - {profile}:
        if not stamp_is_current(other):
            stamp_path(other).unlink(missing_ok=True)
    stamp_path(profile).write_text(stamp_text(profile), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
