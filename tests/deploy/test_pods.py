"""The pods of overlays/kind as processes, with nothing of their manifests replaced."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rlm_sandbox.files import encode_properties, write_atomically
from rlm_sandbox.kafka_dist import cache_dir, resolve_kafka
from rlm_sandbox.nodes import LOG4J
from rlm_sandbox.store_servers import versitygw
from tests.deploy.dockerfile import parse
from tests.deploy.manifests import OURS, Container, config_text, containers, rendered
from tests.deploy.namespaces import Image, Node, Started, needs_namespaces
from tests.deploy.pod_client import digest_of
from tests.project.tree import ROOT

NAME = "overlays/kind"
POD = "kafka-0"
PROXY = "kafka-0.kafka.kafka.svc.cluster.local:19092"
BROKER = "kafka-0.kafka.kafka.svc.cluster.local:9092"
API = ["--address", "kafka-0.kafka.kafka.svc.cluster.local:19093"]
RECORDS = 6 * 1024
LIMIT_S = 240
KEPT = ("--local-retention-bytes", str(1 << 20))

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1800)]


def found(name: str) -> Container:
    (one,) = (one for one in containers(rendered(NAME)) if one.name == name)
    return one


def wait_for(holds: Callable[[], bool], what: str, *running: Started) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        said = "\n".join(one.said() for one in running)
        ended = [one.container.name for one in running if one.process.poll() is not None]
        assert not ended, f"{ended} ended\n{said}"
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{said}"
        time.sleep(0.2)


def our_image() -> Image:
    """The environment of docker/Dockerfile, and this checkout for what it builds."""
    stage = parse((ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")).stages[-1]
    prefix, base = Path(sys.prefix).resolve(), Path(sys.base_prefix)
    return Image(
        environment={**stage.environment, "PYTHONPATH": str(ROOT)},
        user=int(stage.last("USER").rest.partition(":")[0]),
        workdir=stage.last("WORKDIR").rest,
        paths={
            "/opt/rlm": prefix,
            **{str(path): path for path in (prefix, base, ROOT)},
        },
    )


def kafka_image(folder: Path) -> Image:
    """As apache/kafka does it: the variables are settings, and the storage is formatted."""
    container = found("kafka")
    dist = resolve_kafka(version=container.manifest["image"].partition(":")[2])
    environment = container.environment
    properties = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith("KAFKA_")
    }
    write_atomically(folder / "server.properties", encode_properties(properties))
    write_atomically(folder / "log4j2.properties", LOG4J)
    options = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
    logs = "-Dlog4j2.configurationFile=file:/opt/kafka/log4j2.properties"
    java = " ".join([str(dist.java), *options, logs, "-cp", dist.classpath()])
    settings = "/opt/kafka/server.properties"
    script = (
        f"{java} kafka.tools.StorageTool format --ignore-formatted "
        f'--cluster-id "$CLUSTER_ID" --config {settings} && exec {java} kafka.Kafka {settings}'
    )
    cache, home = cache_dir(), dist.java.parent.parent
    return Image(
        command=("sh", "-c", script),
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        paths={"/opt/kafka": folder, **{str(path): path for path in (cache, home)}},
    )


def s3_image() -> Image:
    return Image(
        command=("/opt/versitygw",),
        environment={"PATH": "/usr/bin:/bin"},
        paths={"/opt/versitygw": versitygw.resolve(lambda _: None)},
    )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """With the S3 server of the overlay, which answers."""
    needs_namespaces()
    folder = tmp_path / "kafka"
    folder.mkdir()
    images = {
        OURS: our_image(),
        "apache/kafka": kafka_image(folder),
        "versity/versitygw": s3_image(),
    }
    with Node(tmp_path, rendered(NAME), images) as made:
        made.run(found("bucket"))
        started = made.start(found("s3"))
        probe = started.container.manifest["readinessProbe"]
        wait_for(lambda: made.passes(started, probe), "the S3 server", started)
        yield made


class KafkaPod:
    """The pod kafka-0, whose containers have passed all their probes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.started = {name: node.start(found(name)) for name in ("kafka", "rlm", "plugin")}
        others = [self.started[name] for name in ("kafka", "plugin")]
        wait_for(self._service_starts, "startup of rlm", *others)
        for kind in ("startup", "readiness", "liveness"):
            for one in self.started.values():
                if probe := one.container.manifest.get(f"{kind}Probe"):
                    self.wait_for(
                        partial(node.passes, one, probe), f"{kind} of {one.container.name}"
                    )

    def _service_starts(self) -> bool:
        """It refuses disks that the broker has not formatted yet; the kubelet starts it again."""
        rlm = self.started["rlm"]
        if rlm.process.poll() is not None:
            assert "meta.properties cannot be read" in rlm.said(), rlm.said()
            rlm = self.started["rlm"] = self.node.start(rlm.container)
        return self.node.passes(rlm, rlm.container.manifest["startupProbe"])

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        wait_for(holds, what, *self.started.values())

    def execute(self, *command: str) -> str:
        """In the container `rlm`."""
        done = self.started["rlm"].execute(list(command), LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def client(self, *words: str) -> str:
        return self.execute("python", "-m", "tests.deploy.pod_client", *words)


def test_a_whole_pod_serves_is_reloaded_ends_in_its_time_and_comes_back(node: Node) -> None:
    pod = KafkaPod(node)
    assert node.hears(POD, 9092) and not node.hears(POD, 9094), "TIERED is for the pod alone"
    for path in ("/var/lib/kafka/data/x", "/etc/rlm/service/x", "/opt/x"):
        assert pod.started["rlm"].execute(["touch", path], LIMIT_S).returncode != 0, path
    pod.client("produce", PROXY, "orders", str(RECORDS))
    pod.execute("rlm", "topics", "enable", "orders", "--trim", *KEPT, *API)

    config = config_text(pod.started["rlm"].container, rendered(NAME))
    changed = {"kafka-0.yaml": f"{config}\ntrim.interval.ms: 1000\n"}
    node.volumes.renew(pod.started["rlm"].container, "config", changed)
    assert "trim.interval.ms: 30000 -> 1000" in pod.execute("rlm", "config", "reload", *API)

    pod.wait_for(lambda: int(pod.client("start", BROKER, "orders")) > 0, "a trim")
    assert pod.client("start", PROXY, "orders") == "0"
    assert pod.client("digest", PROXY, "orders", str(RECORDS)) == digest_of(RECORDS)

    ends = node.end(POD)
    assert ends["rlm"].status == ends["plugin"].status == 0
    for name, end in ends.items():
        hook = found(name).manifest.get("lifecycle", {}).get("preStop")
        assert hook is None or end.after_s >= int(hook["exec"]["command"][1]), name
        assert end.after_s < found(name).spec["terminationGracePeriodSeconds"], name

    again = KafkaPod(node)
    assert int(again.client("start", BROKER, "orders")) > 0
    assert again.client("digest", PROXY, "orders", str(RECORDS)) == digest_of(RECORDS)
