"""Jars from a Maven repository: dependencies, mirrors, broken downloads, and no network at all."""

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rlm_sandbox.kafka_dist import java_environment, resolve_kafka
from rlm_sandbox.maven import cached_jars, fetch_jars
from rlm_sandbox.spec import KAFKA_VERSION, SandboxError, kafka_coordinates

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>g</groupId><artifactId>{name}</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = (
    "<dependency><groupId>g</groupId><artifactId>{name}</artifactId><version>1</version>"
    "<scope>runtime</scope></dependency>"
)
JAR = bytes(range(256)) * 1000


class Repository(ThreadingHTTPServer):
    """A Maven repository in memory that can cut answers short."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.cut: set[str] = set()

    def publish(self, name: str, *dependencies: str, jar: bytes = JAR) -> None:
        listed = "".join(DEPENDENCY.format(name=one) for one in dependencies)
        pom = POM.format(name=name, dependencies=listed).encode()
        for suffix, content in ((".pom", pom), (".jar", jar)):
            path = f"/g/{name}/1/{name}-1{suffix}"
            self.files[path] = content
            self.files[path + ".sha1"] = hashlib.sha1(content).hexdigest().encode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Serves `Repository.files`, with ranges."""

    server: Repository

    def do_GET(self) -> None:
        asked_range = self.headers.get("Range")
        self.server.asked.append((self.path, asked_range))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(asked_range.removeprefix("bytes=").rstrip("-")) if asked_range else 0
        body = content[start:]
        self.send_response(206 if asked_range else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path in self.server.cut:
            self.server.cut.remove(self.path)
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def repository() -> Iterator[Repository]:
    with Repository() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def fetch(repository: Repository, cache: Path, *coordinates: str) -> tuple[str, ...]:
    jars = fetch_jars(coordinates, cache, repository.url, lambda _line: None)
    assert all(jar.read_bytes() == JAR for jar in jars)
    return tuple(jar.name for jar in jars)


def test_a_jar_comes_with_what_it_needs(repository: Repository, tmp_path: Path) -> None:
    repository.publish("a", "b")
    repository.publish("b")
    assert fetch(repository, tmp_path, "g:a:1") == ("a-1.jar", "b-1.jar")
    assert not list(tmp_path.rglob("*.part"))


def test_a_cut_download_is_continued_not_begun_again(
    repository: Repository, tmp_path: Path
) -> None:
    repository.publish("a")
    repository.cut.add("/g/a/1/a-1.jar")
    assert fetch(repository, tmp_path, "g:a:1") == ("a-1.jar",)
    ranges = [asked for path, asked in repository.asked if path == "/g/a/1/a-1.jar"]
    assert ranges[0] is None
    assert [asked and int(asked[6:-1]) > 0 for asked in ranges[1:]] == [True]


def test_who_asks_at_the_same_time_waits_for_the_one_download(
    repository: Repository, tmp_path: Path
) -> None:
    for name, needed in (("a", "c"), ("b", "c")):
        repository.publish(name, needed)
    repository.publish("c")

    def cached(name: str) -> tuple[str, ...]:
        url, said = repository.url, progress.append
        jars = cached_jars(
            name, (f"g:{name}:1",), tmp_path, repository=url, size_mib=1, progress=said
        )
        return tuple(jar.name for jar in jars)

    progress: list[str] = []
    names = ("a", "b") * 4
    with ThreadPoolExecutor(len(names)) as pool:
        found = list(pool.map(cached, names))
    assert found == [(f"{name}-1.jar", "c-1.jar") for name in names]
    jars = [path for path, _range in repository.asked if path.endswith(".jar")]
    assert sorted(jars) == [f"/g/{name}/1/{name}-1.jar" for name in "abc"]
    assert {line.split()[0] for line in progress if "fetched once" in line} == {"a", "b"}


def test_a_wrong_jar_is_never_kept(repository: Repository, tmp_path: Path) -> None:
    repository.publish("a")
    repository.files["/g/a/1/a-1.jar.sha1"] = b"0" * 40
    with pytest.raises(SandboxError, match="SHA-1 differs"):
        fetch(repository, tmp_path, "g:a:1")
    assert not list(tmp_path.rglob("a-1.jar*"))


def test_a_version_that_is_not_there_is_one_line(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="cannot be resolved") as caught:
        fetch(repository, tmp_path, "g:missing:1")
    assert "\n" not in str(caught.value)


def test_without_network_one_line_says_what_is_missing(tmp_path: Path) -> None:
    environ = {
        "RLM_CACHE_DIR": str(tmp_path),
        "RLM_MAVEN_REPO": "http://127.0.0.1:9",
        "PATH": "",
    }
    with pytest.raises(SandboxError) as caught:
        resolve_kafka(environ=environ)
    message = str(caught.value)
    assert "\n" not in message
    for word in ("kafka_2.13", "RLM_MAVEN_REPO", "--kafka-home"):
        assert word in message


def stamp(cache: Path, jar: Path, size_bytes: int) -> None:
    coordinates = ",".join(
        f'"{one}"' for one in kafka_coordinates(KAFKA_VERSION, native_tiering=False)
    )
    path = cache / "stamps" / f"kafka-{KAFKA_VERSION}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    name = jar.relative_to(cache).as_posix()
    path.write_text(f'{{"v":1,"coordinates":[{coordinates}],"jars":{{"{name}":{size_bytes}}}}}')


def test_a_stamped_cache_needs_no_network(tmp_path: Path) -> None:
    environ = {"RLM_CACHE_DIR": str(tmp_path), "RLM_MAVEN_REPO": "http://127.0.0.1:9"}
    jar = tmp_path / "maven" / "a.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"abc")
    stamp(tmp_path, jar, 3)
    assert resolve_kafka(environ=environ).jars == (jar,)
    stamp(tmp_path, jar, 4)
    with pytest.raises(SandboxError):
        resolve_kafka(environ=environ)


def test_kafka_home_and_java_home_are_used_when_given(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "libs").mkdir(parents=True)
    (tmp_path / "kafka" / "libs" / "kafka-clients-9.8.7.jar").touch()
    (tmp_path / "java" / "bin").mkdir(parents=True)
    (tmp_path / "java" / "bin" / "java").touch()
    environ = {"JAVA_HOME": str(tmp_path / "java"), "RLM_CACHE_DIR": str(tmp_path)}
    dist = resolve_kafka(kafka_home=tmp_path / "kafka", environ=environ)
    assert dist.version == "9.8.7"
    assert dist.java_command("Main", "x") == [
        str(tmp_path / "java" / "bin" / "java"),
        "-cp",
        str(tmp_path / "kafka" / "libs" / "kafka-clients-9.8.7.jar"),
        "Main",
        "x",
    ]


@pytest.mark.parametrize(
    ("environ", "changed"),
    [
        ({}, True),
        ({"LANG": "C"}, True),
        ({"LANG": "de_DE.UTF-8"}, False),
        ({"LC_ALL": "C.utf8"}, False),
    ],
)
def test_java_gets_a_utf8_locale(environ: dict[str, str], changed: bool) -> None:
    assert ("C.UTF-8" in java_environment(environ).values()) is changed
