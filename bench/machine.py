"""What ran where, in words: no host name, no path."""

import os
import platform
import re
import subprocess
from pathlib import Path

import psutil

_ROOT = Path(__file__).resolve().parents[1]


def machine_in_words() -> str:
    """Such as `Linux x86_64, 2 cores of AMD EPYC, 24 GiB memory, Python 3.11.9`."""
    memory_gib = round(psutil.virtual_memory().total / (1 << 30))
    return (
        f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}, "
        f"{os.cpu_count()} cores of {_processor()}, "
        f"{memory_gib} GiB memory, Python {platform.python_version()}"
    )


def load_in_words() -> str:
    """The load averages, from which a reader can see the noise."""
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


def commit() -> str:
    """The commit of this checkout, with `+changes` where files differ from it."""
    head = _git("rev-parse", "HEAD")
    if not head:
        return "unknown (no git checkout)"
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return head + ("+changes" if changed else "")


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "an unknown processor"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
