"""`python -m build_tools.wheels [--check]`: every locked package has a wheel for every platform.

Recording asks the package index (through uv) which wheels exist for the locked versions and, by
downloading those of locks that changed, how large they are; it writes requirements/wheels.json,
which carries each lock's sha256. Checking needs no network: it holds the record against the locks,
and the tags in the wheels' names against every supported platform and Python.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

from build_tools.locks import (
    DEMO_PROFILES,
    PROFILES,
    RECORD,
    WITHOUT_WHEEL,
    Pin,
    lock_digest,
    lock_path,
    read_pins,
)

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The oldest system of each kind that is promised: glibc 2.28 (RHEL 8, Debian 10), macOS 14.
GLIBC_MINOR = 28
MACOS = (14, 0)
PLATFORMS = ("linux_x86_64", "linux_aarch64", "darwin_arm64")


def platform_tags(platform: str) -> list[str]:
    """The platform tags that a promised platform accepts."""
    if platform == "darwin_arm64":
        return list(mac_platforms(MACOS, "arm64"))
    machine = platform.removeprefix("linux_")
    legacy = [f"manylinux2014_{machine}"]
    if machine == "x86_64":
        legacy += ["manylinux2010_x86_64", "manylinux1_x86_64"]
    return [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 4, -1)] + legacy


def accepted_tags(platform: str, python: str) -> frozenset[Tag]:
    """Every wheel tag that CPython of a version accepts on a platform."""
    version = tuple(int(part) for part in python.split("."))
    tags = platform_tags(platform)
    interpreter = f"cp{version[0]}{version[1]}"
    return frozenset(cpython_tags(version, platforms=tags)) | frozenset(
        compatible_tags(version, interpreter, tags)
    )


def is_needed(pin: Pin, platform: str, python: str) -> bool:
    """Whether the pin's marker asks for it there."""
    if not pin.marker:
        return True
    system, _, machine = platform.partition("_")
    environment = {
        "sys_platform": system,
        "platform_system": system.capitalize(),
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "extra": "",
    }
    return Marker(pin.marker).evaluate(environment)


def missing_wheels(pins: Sequence[Pin], wheels: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Each locked package, platform and Python for which no recorded wheel fits, as a line."""
    tags_of = {
        name: [parse_wheel_filename(file)[3] for file in files] for name, files in wheels.items()
    }
    for platform in PLATFORMS:
        for python in PYTHONS:
            accepted = accepted_tags(platform, python)
            for pin in pins:
                if pin.name in WITHOUT_WHEEL or not is_needed(pin, platform, python):
                    continue
                if not any(tags & accepted for tags in tags_of.get(pin.name, [])):
                    yield f"{pin.name}=={pin.version}: no wheel for {platform}, Python {python}"


def check(record: Mapping[str, Any]) -> list[str]:
    """The faults of the record and the locks, one line each; empty when all is proven."""
    pins = {
        profile: read_pins(lock_path(profile).read_text(encoding="utf-8")) for profile in PROFILES
    }
    problems = [
        f"{profile}.txt changed since its wheels were recorded: run make check-wheels"
        for profile in PROFILES
        if record["locks"].get(profile) != lock_digest(profile)
    ]
    everything = {(pin.name, pin.version) for pin in pins["all"]}
    problems += [
        f"{profile}.txt: {pin.name}=={pin.version} is not what all.txt locks"
        for profile in PROFILES
        for pin in pins[profile]
        if (pin.name, pin.version) not in everything
    ]
    versions = dict(everything)
    problems += [
        f"{name}: recorded wheel {file} is not the locked version"
        for name, files in record["wheels"].items()
        for file in files
        if str(parse_wheel_filename(file)[1]) != versions.get(name)
    ]
    return problems + list(missing_wheels(pins["all"], record["wheels"]))


def offered_wheels(pins: Sequence[Pin]) -> dict[str, list[str]]:
    """The wheels the index offers for the locked versions that a promised platform can use."""
    usable = frozenset[Tag]().union(
        *(accepted_tags(platform, python) for platform in PLATFORMS for python in PYTHONS)
    )
    offered: dict[str, list[str]] = {}
    for package in _resolve_lock_file()["packages"]:
        files = [wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", [])]
        fitting = [file for file in files if parse_wheel_filename(file)[3] & usable]
        offered[package["name"]] = sorted(fitting)
    return {pin.name: offered[pin.name] for pin in pins if pin.name not in WITHOUT_WHEEL}


def _resolve_lock_file() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pylock.toml"
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--no-deps", "--generate-hashes", "--python-version", PYTHONS[0]]
        command += ["--format", "pylock.toml", "-o", str(out), str(lock_path("all"))]
        subprocess.run(command, check=True)
        return tomllib.loads(out.read_text(encoding="utf-8"))


def measure_mb(profile: str, platform: str) -> int:
    """The size of a profile's wheels on a platform, in megabytes, found by downloading them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
        command += ["--only-binary", ":all:", "--python-version", PYTHONS[0]]
        for tag in platform_tags(platform):
            command += ["--platform", tag]
        pins = read_pins(lock_path(profile).read_text(encoding="utf-8"))
        needed = [pin for pin in pins if is_needed(pin, platform, PYTHONS[0])]
        command += [f"{pin.name}=={pin.version}" for pin in needed if pin.name not in WITHOUT_WHEEL]
        subprocess.run(command, check=True)
        total = sum(path.stat().st_size for path in Path(folder).glob("*.whl"))
    sources = [WITHOUT_WHEEL[pin.name].size_mb for pin in needed if pin.name in WITHOUT_WHEEL]
    return -(-total // 1_000_000) + sum(sources)


def sizes_mb(profile: str, before: Mapping[str, Any]) -> dict[str, int]:
    """The size of a profile on each platform; measured only where its lock changed."""
    known = before["download_mb"].get(profile, {})
    if before["locks"].get(profile) == lock_digest(profile) and set(known) == set(PLATFORMS):
        return dict(known)
    return {platform: measure_mb(profile, platform) for platform in PLATFORMS}


def record(before: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the index, measure what changed since the record before; the record to be committed."""
    pins = read_pins(lock_path("all").read_text(encoding="utf-8"))
    sizes = {profile: sizes_mb(profile, before) for profile in (*DEMO_PROFILES, "all")}
    return {
        "v": 1,
        "pythons": PYTHONS,
        "without_wheel": {name: source.reason for name, source in WITHOUT_WHEEL.items()},
        "locks": {profile: lock_digest(profile) for profile in PROFILES},
        "download_mb": sizes,
        "wheels": offered_wheels(pins),
    }


def main(arguments: list[str]) -> int:
    """Record and check, or with --check only check; the exit status of the process."""
    if arguments != ["--check"]:
        before = json.loads(RECORD.read_text(encoding="utf-8"))
        RECORD.write_text(json.dumps(record(before), indent=1) + "\n", encoding="utf-8")
    problems = check(json.loads(RECORD.read_text(encoding="utf-8")))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
