"""A folder from which pip installs a lock without a network: its wheels, and their hashes.

It is for this machine's platform and Python, as pip itself takes the wheels for them.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from build_tools.locks import WITHOUT_WHEEL, lock_path, read_pins

_HEAD = """\
# For Python {python} on {system}; without a network:
#   pip install --no-index --find-links FOLDER --require-hashes -r FOLDER/requirements.txt
"""


class WheelhouseError(Exception):
    """The folder cannot be made; the message is the one line to show."""


def fill(folder: Path, profile: str, wheel: Path) -> Path:
    """Download the wheels of a lock into a new folder, beside a wheel of this software."""
    pins = read_pins(lock_path(profile).read_text(encoding="utf-8"))
    if source_only := [pin.name for pin in pins if pin.name in WITHOUT_WHEEL]:
        raise WheelhouseError(f"{profile}.txt has {', '.join(source_only)}, which has no wheel")
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"]
    command += ["--only-binary", ":all:", "-d", str(folder), "-r", str(lock_path(profile))]
    if subprocess.run(command, check=False).returncode != 0:
        raise WheelhouseError(f"pip cannot download the wheels of requirements/{profile}.txt")
    shutil.copy(wheel, folder)
    head = _HEAD.format(python=platform.python_version(), system=platform.platform(terse=True))
    lines = sorted(map(_line, folder.glob("*.whl")))
    (folder / "requirements.txt").write_text(head + "".join(lines), encoding="utf-8")
    return folder


def _line(wheel: Path) -> str:
    name, version = wheel.stem.split("-")[:2]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{name.replace('_', '-').lower()}=={version} --hash=sha256:{digest}\n"
