"""`python -m build_tools.lock [--upgrade]`: the hashed, universal locks from pyproject.toml.

all.txt is resolved first; the smaller ones are constrained by it, so that they agree with it.
"""

import os
import subprocess
import sys

from build_tools.locks import ROOT, lock_path

SELECTIONS = {
    "all": ["--all-extras", "--group", "bootstrap", "--group", "dev", "pyproject.toml"],
    "service": ["--extra", "s3", "--extra", "hdfs", "--extra", "otel", "pyproject.toml"],
    "demo": ["--extra", "demo", "--group", "bootstrap", "pyproject.toml"],
    "demo-s3": ["--extra", "demo", "--extra", "s3", "--group", "bootstrap", "pyproject.toml"],
    "demo-hdfs": ["--extra", "demo", "--extra", "hdfs", "--group", "bootstrap", "pyproject.toml"],
    "demo-spark": ["--extra", "demo", "--extra", "spark", "--group", "bootstrap", "pyproject.toml"],
    "bootstrap": ["--group", "bootstrap"],
}


def compile_lock(profile: str, options: list[str]) -> None:
    """Resolve one profile for every platform at once and write its lock, without addresses."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    command += ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--python-version", "3.11", "-o", str(lock_path(profile).relative_to(ROOT))]
    if profile != "all":
        command += ["-c", str(lock_path("all").relative_to(ROOT)), "--no-annotate"]
    environment = {**os.environ, "UV_CUSTOM_COMPILE_COMMAND": "make lock"}
    subprocess.run(
        [*command, *SELECTIONS[profile], *options],
        cwd=ROOT,
        env=environment,
        check=True,
    )


def main(arguments: list[str]) -> int:
    """Write every lock; options (--upgrade) go to uv. The exit status of the process."""
    lock_path("all").parent.mkdir(exist_ok=True)
    for profile in SELECTIONS:
        compile_lock(profile, arguments)
        print(f"requirements/{profile}.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
