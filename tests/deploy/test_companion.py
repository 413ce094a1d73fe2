"""The pods of overlays/strimzi as processes beside a secured broker: a companion, and a reader."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from tests.deploy.pod_processes import Files, end_all
from tests.deploy.strimzi_cluster import COMPANION, READER, TOPIC, StrimziCluster
from tests.sandbox_fixtures import patient
from tests.scenarios.cluster import Row, assert_same

LIMIT_S = 240
MONITORING = "of-the-monitoring"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrimziCluster]:
    """The service of the sandbox's own does not run."""
    spec = SandboxSpec(security="sasl_ssl", store="s3", without=("rlm:1",), jvm="quick")
    made = Sandbox.up(tmp_path_factory.mktemp("strimzi"), patient(spec))
    try:
        with StrimziCluster(made, tmp_path_factory.mktemp("secrets")) as found:
            found.operate()
            yield found
    finally:
        made.down(delete=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """The path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="pod-") as made:
        yield Path(made)


def trimmed(cluster: StrimziCluster) -> list[Row]:
    """New records, the first of which the broker has no more."""
    acked = cluster.fill(TOPIC, mib=4)
    cluster.enable(TOPIC)
    cluster.wait_trimmed(TOPIC, beyond=acked[0].offset)
    return acked


def read_again(cluster: StrimziCluster, acked: list[Row]) -> list[Row]:
    """From the first of them on, through the proxy."""
    return cluster.read_all(TOPIC, start={0: acked[0].offset})


def test_companion_and_reader_pass_their_probes_and_serve_old_records(
    cluster: StrimziCluster, folder: Path
) -> None:
    with (
        cluster.pod(COMPANION, folder / "companion") as companion,
        cluster.pod(READER, folder / "reader") as reader,
    ):
        companion.wait_for_probes()
        cluster.asked = companion
        acked = trimmed(cluster)
        assert_same(read_again(cluster, acked), acked)
        start = cluster.log_start(TOPIC)

        reader.wait_for_probes()
        cluster.asked = reader
        assert_reads_what_is_remote(cluster, acked, start)
        for pod in (companion, reader):
            assert (pod.status("/metrics"), pod.status("/metrics", MONITORING)) == (401, 200)


def assert_reads_what_is_remote(cluster: StrimziCluster, acked: list[Row], start: int) -> None:
    """At least what the broker has trimmed: equal, in order, once."""
    first = acked[0].offset
    which = (TOPIC, "--partition", "0", "--offset", str(first), "--count", "0", "--remote-only")
    found: list[tuple[int, bytes]] = []

    def reaches_the_trim() -> bool:
        lines = cluster.rlm("fetch", *which, "--json").stdout.splitlines()
        rows = map(json.loads, lines)
        found[:] = [(row["offset"], row["value"].encode()) for row in rows]
        return len(found) >= start - first > 0

    cluster.wait_for(reaches_the_trim, "a ledger that the reader has read so far")
    assert found == [(row.offset, row.value) for row in acked[: len(found)]]


@pytest.mark.long
def test_both_end_as_kubernetes_ends_them_and_the_companion_comes_back(
    cluster: StrimziCluster, folder: Path
) -> None:
    companion = cluster.pod(COMPANION, folder / "companion")
    reader = cluster.pod(READER, folder / "reader")
    with companion, reader:
        companion.wait_for_probes()
        cluster.asked = companion
        acked = trimmed(cluster)
        reader.wait_for_probes()
        for pod, end in zip((companion, reader), end_all(companion, reader), strict=True):
            hook = pod.container.manifest["lifecycle"]["preStop"]["exec"]["command"]
            grace_s = pod.container.spec["terminationGracePeriodSeconds"]
            assert end.status == 0, pod.said()
            assert int(hook[1]) <= end.after_s < grace_s
    with companion:
        companion.wait_for_probes()
        assert_same(read_again(cluster, acked), acked)


Secrets = Callable[[StrimziCluster], Mapping[str, Files]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`says`: what is in the log. `status`: with which the process ends, None: it goes on, and
    `is_ready` is what its readiness probe says.
    """

    says: str
    pod: str = COMPANION
    secrets: Secrets = lambda _: {}
    forgets: str = ""
    status: int | None = None
    is_ready: bool = False


PASSWORD = "look at kafka.sasl.username ({}) and kafka.sasl.password"
FAULTS = {
    "the broker's volume is not mounted": Fault(
        forgets="/var/lib/kafka/data-0",
        says="/var/lib/kafka/data-0/kafka-log0 is not there",
        status=2,
    ),
    "the password is another user's": Fault(
        secrets=lambda cluster: {"rlm": cluster.secrets["rlm-reader"]},
        says=PASSWORD.format("rlm"),
        is_ready=True,
    ),
}
MORE_FAULTS = {
    "the authority of rlm-tls is taken for the brokers'": Fault(
        secrets=lambda cluster: {"my-cluster-cluster-ca-cert": cluster.secrets["rlm-tls"]},
        says="of no authority that is trusted",
    ),
    "the token has another key in its Secret": Fault(
        secrets=lambda _: {"rlm-api": {"api-token": b"x", "http-token": b"x"}},
        says="api.token.file: ",
        status=2,
    ),
    "the store refuses the credentials": Fault(
        secrets=lambda _: {
            "rlm-store": {
                "credentials": b"[default]\naws_access_key_id = rlm-sandbox\n"
                b"aws_secret_access_key = of-somebody-else\n"
            }
        },
        says="mend the credentials (rsm.config.aws.*)",
        is_ready=True,
    ),
    "a reader has another user's password": Fault(
        pod=READER,
        secrets=lambda cluster: {"rlm-reader": cluster.secrets["rlm"]},
        says=PASSWORD.format("rlm-reader"),
    ),
    "a reader's user is not mounted": Fault(
        pod=READER,
        forgets="/etc/rlm/user",
        says="kafka.sasl.password.file: cannot read ",
    ),
}


@pytest.mark.parametrize(
    "fault",
    [
        *(pytest.param(one, id=name) for name, one in FAULTS.items()),
        *(pytest.param(one, id=name, marks=pytest.mark.long) for name, one in MORE_FAULTS.items()),
    ],
)
def test_a_wrong_secret_or_a_missing_mount_is_named(
    cluster: StrimziCluster, folder: Path, fault: Fault
) -> None:
    with cluster.pod(fault.pod, folder / "pod", fault.secrets(cluster), fault.forgets) as pod:
        if fault.status is not None:
            assert pod.process.wait(LIMIT_S) == fault.status, pod.said()
            assert pod.has_said(fault.says), pod.said()
            return
        pod.wait_for(lambda: pod.passes("startup"), "the startup probe")
        pod.wait_for(lambda: pod.has_said(fault.says), fault.says)
        if fault.is_ready:
            pod.wait_for(lambda: pod.passes("readiness"), "bytes that pass nevertheless")
        else:
            assert not pod.passes("readiness")
        pod.wait_for(lambda: pod.passes("liveness"), "an event loop that answers")
