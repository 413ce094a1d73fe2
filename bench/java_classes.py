"""Compiles a few Java classes of our own once, by Eclipse's compiler: the packaged JRE has none."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from rlm_sandbox.kafka_dist import KafkaDist, cache_dir, java_binary, java_environment
from rlm_sandbox.maven import cached_jars
from rlm_sandbox.spec import SandboxError

COMPILER = "org.eclipse.jdt:ecj:3.40.0"
_COMPILER_MIB = 4
_COMPILE_LIMIT_S = 120


def compiled(compiler: Path, sources: Path, class_path: str, name: str) -> Path:
    """Folder of the classes of a folder of sources, out of the cache unless a source changed."""
    files = sorted(sources.glob("*.java"))
    content = b"".join(source.read_bytes() for source in files)
    made = cache_dir() / name / hashlib.sha256(content).hexdigest()[:16]
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=made.parent))
    try:
        _compile(compiler, files, class_path, folder)
        folder.chmod(0o755)
        if not made.exists():
            folder.rename(made)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return made


def java_compiler(progress: Callable[[str], None] = lambda _line: None) -> Path:
    """The jar of the compiler."""
    (compiler,) = cached_jars(
        "java-compiler",
        (COMPILER,),
        cache_dir(),
        repository=os.environ.get("RLM_MAVEN_REPO"),
        size_mib=_COMPILER_MIB,
        progress=progress,
        alone=True,
    )
    return compiler


def kafka_class_path(
    dist: KafkaDist,
    sources: Path,
    name: str,
    progress: Callable[[str], None] = lambda _line: None,
) -> str:
    """Kafka's jars and the compiled sources, which may use all of Kafka's classes."""
    compiler = java_compiler(progress)
    classes = compiled(compiler, sources, dist.classpath(), f"{name}-{dist.version}")
    return os.pathsep.join((dist.classpath(), str(classes)))


def _compile(compiler: Path, sources: Iterable[Path], class_path: str, folder: Path) -> None:
    done = subprocess.run(
        [
            *(str(java_binary()), "-XX:-UsePerfData", "-jar", str(compiler)),
            *("-17", "-nowarn", "-d", str(folder), "-cp", class_path),
            *map(str, sources),
        ],
        capture_output=True,
        text=True,
        timeout=_COMPILE_LIMIT_S,
        env=java_environment(),
        check=False,
    )
    if done.returncode != 0:
        raise SandboxError(f"{folder.parent.name} does not compile: {done.stderr[-500:]}")
