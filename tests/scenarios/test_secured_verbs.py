"""Every command of `rlm`, transactions and a reader on secured clusters, with SASL_SSL and with
certificates.

Commands that connect to Kafka themselves are User:operator, who has the least rights of that role
and nothing else; all others ask the service, which is User:rlm.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
import yaml
from confluent_kafka import TopicPartition

from rlm.api.call_metadata import call_metadata
from rlm.cli.output import Wanted, user_records
from rlm.plans.rights import USUAL_CASES, Role, Topics, When, least_acls
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.clients import service_settings
from rlm_sandbox.security.cluster_security import ClusterSecurity, security_of
from rlm_sandbox.security.principals import ADMIN
from rlmm.topic import LEDGER_TOPIC
from tests.scenarios.cluster import Row, assert_same, fresh
from tests.scenarios.mixed import Load, Mixed
from tests.scenarios.new_principals import grant, with_principal
from tests.scenarios.objects import RECORDS, finished_segments, names_of, objects_of
from tests.scenarios.test_foreign_retention import alarms, bound
from tests.scenarios.test_h38_problems import Operator
from tests.scenarios.test_secured import PrincipalCluster
from tests.scenarios.verbs import Verbs, leaves

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1200),
    pytest.mark.parametrize(
        "secured_sandbox",
        ["sasl_ssl", pytest.param("mtls", marks=pytest.mark.long)],
        indirect=True,
    ),
]

OPERATOR = "operator"
PRINCIPAL = f"User:{OPERATOR}"
HOUR_MS = "3600000"
_CALL_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A topic in both tiers, with transactions that were aborted in either."""

    topic: str
    mixed: Mixed

    def by_level(self) -> Iterator[tuple[str, list[Row]]]:
        """What there is to read, by `isolation.level`."""
        yield "read_committed", self.mixed.committed
        yield "read_uncommitted", self.mixed.all_rows


@pytest.fixture(scope="module")
def secured(secured_sandbox: Sandbox) -> Iterator[PrincipalCluster]:
    with PrincipalCluster.of_sandbox(secured_sandbox) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def archive(secured: PrincipalCluster) -> Archive:
    topic = fresh("mixed")
    secured.create_topic(topic)
    mixed = Load(secured, topic, 1).run(3)
    aborted = sorted(offset for _, offset in mixed.aborted)
    secured.enable(topic)
    secured.wait_trimmed(topic, beyond=aborted[len(aborted) // 2])
    secured.wait_copied(topic)
    return Archive(topic=topic, mixed=mixed)


def test_transactions_are_read_at_both_isolation_levels(
    secured: PrincipalCluster, archive: Archive
) -> None:
    assert len(archive.mixed.committed) < len(archive.mixed.all_rows)
    for level, rows in archive.by_level():
        config = {**secured.of("reader"), "isolation.level": level}
        assert_same(secured.read_all(archive.topic, **config), rows)


def test_a_reader_process_answers_what_was_acknowledged(
    secured: PrincipalCluster, archive: Archive
) -> None:
    end = int(secured.status(archive.topic)["remote_next_offset"])
    assert end > secured.log_start(archive.topic)

    def knows_all() -> bool:
        try:
            return _from_reader(secured, archive.topic, "read_uncommitted")[1] == end
        except grpc.RpcError:
            return False

    secured.wait_for(knows_all, "the reader knows all that is remote")
    for level, rows in archive.by_level():
        read, read_to = _from_reader(secured, archive.topic, level)
        assert read_to == end
        assert_same(read, [row for row in rows if row.offset < end])


def _from_reader(cluster: PrincipalCluster, topic: str, level: str) -> tuple[list[Row], int]:
    """What the reader streams of the remote tier from offset 0, and where that ends."""
    request = pb.FetchRequest(
        topic=pb.TopicRef(name=topic),
        tiers=pb.REMOTE_ONLY,
        isolation_level=level.upper(),
    )
    [reader] = cluster.sandbox.json["readers"]
    rows: list[Row] = []
    position = 0
    with grpc.insecure_channel(reader["grpc"]) as channel:
        call = FetchServiceStub(channel).Fetch
        for answer in call(request, metadata=call_metadata("tests", None), timeout=_CALL_S):
            aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions]
            wanted = Wanted(start_offset=position, aborted=aborted)
            rows += [
                Row(0, one.offset, one.timestamp_ms, one.key, one.value, one.headers)
                for one in user_records(answer.batches, wanted)
            ]
            position = answer.next_offset
    return rows, position


def test_every_command_works(secured: PrincipalCluster, archive: Archive, tmp_path: Path) -> None:
    verbs = Verbs(secured)
    _reports(verbs, archive.topic)
    verbs.run("diagnose", "-o", str(tmp_path / "diagnosis.tar.gz"), says="files, ")
    _probes(verbs, secured)
    _clients(verbs, secured, archive.topic)
    _data(verbs, secured, archive, tmp_path)
    _switches(verbs, secured, archive.topic)
    _ends(verbs, secured)
    _operators(verbs, secured, archive, tmp_path)
    _losses(verbs, secured, archive.topic)
    assert verbs.ran == leaves()


def _reports(verbs: Verbs, topic: str) -> None:
    verbs.wait("status", topic, says=f"{topic}-0")
    verbs.wait("doctor", "--store", says="store ")
    verbs.run("topics", "list", says=topic)
    verbs.run("topics", "describe", topic, says=topic)
    verbs.run("topics", "retention", topic, "--dry-run", says=f"{topic}-0")
    verbs.run("plan", topic, says=topic)
    verbs.run("cost", topic, says="cost.put.per.1000 is not set")
    verbs.wait("events", topic, says=f"{topic}-0")
    verbs.wait("top", topic, "--once", says=f"{topic}-0")
    verbs.run("segments", topic, says="COPY_SEGMENT_FINISHED")
    verbs.run("explain", topic, "-p", "0", "0", says="is in the remote tier only")
    verbs.wait("verify", topic, "--deep", says="clean")
    verbs.run("copy", topic, says="done")
    verbs.run("bucket-policy", "--bucket", "archive", says="s3:GetObject")
    verbs.run("completion", "bash", says="_RLM_COMPLETE")


def _probes(verbs: Verbs, cluster: PrincipalCluster) -> None:
    config = str(cluster.sandbox.layout.rlm_config(1))
    for check in ("startup", "readiness", "liveness"):
        verbs.wait("probe", check, "--config", config, says="")
    asked = ("doctor", "--config", config, "--json", "--timeout", "90")

    def is_all_asked() -> bool:
        """By the rights of a service; a broker may not answer for a moment."""
        checks = json.loads(cluster.rlm(*asked, check=False).stdout)["checks"]
        unasked[:] = [one["unasked"] for one in checks if one["unasked"]]
        return unasked == []

    unasked: list[str] = []
    cluster.wait_for(is_all_asked, "doctor could ask all")


def _clients(verbs: Verbs, cluster: PrincipalCluster, topic: str) -> None:
    """Clients are shown with the principal that they have proved."""
    config = {**cluster.of("reader"), "client.id": "of-verbs"}
    cluster.read_all(topic, end={0: 100}, **config)

    def who() -> set[tuple[str, str]]:
        """Principal and address of the client as whom something remote was read."""
        rows = cluster.rlm_json("clients", topic)["clients"]
        return {
            (row["principal"], row["address"])
            for row in rows
            if row["client_id"] == "of-verbs" and any(one["remote_bytes"] for one in row["topics"])
        }

    cluster.wait_for(lambda: who() == {("reader", "127.0.0.1")}, "the client and its principal")
    verbs.run("clients", topic, says="of-verbs")


def _data(verbs: Verbs, cluster: PrincipalCluster, archive: Archive, folder: Path) -> None:
    """Everything is read by each way, without what was aborted."""
    topic, rows = archive.topic, archive.mixed.committed
    said = verbs.run("fetch", topic, "-p", "0", "-o", "earliest", "-n", "0", "--json", says="")
    fetched = [json.loads(line) for line in said.splitlines()]
    assert [one["offset"] for one in fetched] == [row.offset for row in rows]
    assert {one["tier"] for one in fetched} == {"remote", "local"}
    verbs.run("download", topic, "--dir", str(folder / "log"), says="segments")
    assert list((folder / "log" / f"{topic}-0").glob("*.log"))
    _restored(verbs, cluster, archive, folder)
    verbs.run("audit", topic, "--cores", "1", says=topic)
    out = ("--dir", str(folder / "parquet"), "--cores", "1")
    verbs.run("export", topic, *out, says=f"{len(rows)} rows in ")


def _restored(verbs: Verbs, cluster: PrincipalCluster, archive: Archive, folder: Path) -> None:
    """What is remote comes into another topic by a super user, from what the service says."""
    security = security_of(cluster.sandbox.layout, cluster.sandbox.state.spec)
    assert security is not None
    files, path = security.files, folder / "target.yaml"
    settings = service_settings(
        security.identity(ADMIN), files.password(ADMIN), files.keystore(ADMIN)
    )
    path.write_text(yaml.safe_dump({**settings, "kafka.bootstrap.servers": cluster.direct}))
    topic, new = archive.topic, f"{archive.topic}-again"
    verbs.run("restore", topic, "--to-topic", new, "--config", str(path), says="complete")
    config = {**cluster.of("reader"), "isolation.level": "read_committed"}
    rows = cluster.read_all(new, **config)
    expected = archive.mixed.committed[: len(rows)]
    assert len(rows) > 100
    assert [replace(row, offset=0) for row in rows] == [replace(row, offset=0) for row in expected]
    cluster.admin.delete_topics([new])[new].result(120)


def _switches(verbs: Verbs, cluster: PrincipalCluster, topic: str) -> None:
    verbs.run("copy-limit", "64MiB", says="64.0 MiB/s")
    verbs.run("copy-limit", "--default", says="1.0 GiB/s")
    settings = str(cluster.sandbox.layout.rlm_config(1))
    verbs.wait("config", "check", settings, "--online", says="ok       store default: ")
    verbs.run("config", "reload", says="no setting has changed")
    verbs.run("store", "prefixes", topic, "--config", settings, says=f"{topic}-0")
    verbs.run("freeze", topic, "--why", "a try", says="a try")
    verbs.run("unfreeze", topic, says="nothing is frozen")
    verbs.run("topics", "trim", topic, "off", says=topic)
    verbs.run("topics", "trim", topic, "on", says=topic)
    chosen = ("--trim", "--retention", "30d", "--local-retention-bytes", "1048576")
    verbs.run("topics", "enable", topic, *chosen, says="30d")
    operator = Operator(cluster)
    bound(cluster, topic, HOUR_MS)
    cluster.wait_for(lambda: len(alarms(operator, topic)) == 1, "the alarm of the retention")
    verbs.run("topics", "accept-retention", topic, "--yes", says="1h")
    cluster.wait_for(lambda: alarms(operator, topic) == [], "the end of the alarm")


def _ends(verbs: Verbs, cluster: PrincipalCluster) -> None:
    """What is remote of a topic is given up, kept, and given up with the topic."""
    topic, _ = cluster.trimmed_topic("ended")
    verbs.run("topics", "disable", topic, "--delete", "--yes", says=topic)
    verbs.run("deletions", "list", says=topic)
    verbs.run("deletions", "undo", topic, says=topic)
    cluster.admin.delete_topics([topic])[topic].result(120)
    verbs.wait("purge", says=topic)
    verbs.wait("purge", topic, "--confirm", says="deleting")


def _operators(verbs: Verbs, cluster: PrincipalCluster, archive: Archive, folder: Path) -> None:
    """`rlm acls`, `rlm reconcile` and `rlm ledger rebuild`, which know Kafka themselves."""
    sandbox = cluster.sandbox
    security = security_of(sandbox.layout, sandbox.state.spec)
    assert security is not None
    config = ("--config", str(_config_of_operator(cluster, security, folder)))
    asked = ("acls", "--principal", PRINCIPAL, "--role", "operator", "--check", *config)
    verbs.wait(*asked, says="this command's own principal may not ask", status=2)
    verbs.run("reconcile", *config, says="missing ACL", status=2)
    _grant(cluster, security, USUAL_CASES - {When.YES})
    verbs.run("reconcile", *config, says="nothing was written: it is with --yes")
    verbs.run(*asked, says="missing ACL: ", status=1)
    _grant(cluster, security, USUAL_CASES)
    verbs.run(*asked, says=f"{PRINCIPAL} has all ACLs")
    verbs.run("reconcile", *config, "--yes", says="0 segments adopted, 0 registered")
    cluster.admin.delete_topics([LEDGER_TOPIC])[LEDGER_TOPIC].result(120)
    cluster.wait_for(
        lambda: LEDGER_TOPIC not in cluster.admin.list_topics(timeout=120).topics, "no ledger"
    )
    rebuild = ("ledger", "rebuild", "--from-store", *config, "--yes")
    verbs.run(*rebuild, says="segments were added; restart every service now")
    for name in ("rlm:1", "reader:1"):
        sandbox.stop(name)
        sandbox.start(name)
    config_of_reader = {**cluster.of("reader"), "isolation.level": "read_committed"}
    assert_same(cluster.read_all(archive.topic, **config_of_reader), archive.mixed.committed)


def _grant(cluster: PrincipalCluster, security: ClusterSecurity, cases: frozenset[When]) -> None:
    """The operator's least rights in these cases."""
    grant(cluster, security, least_acls(Role.OPERATOR, PRINCIPAL, Topics(), cases))


def _config_of_operator(cluster: PrincipalCluster, security: ClusterSecurity, folder: Path) -> Path:
    """The configuration of the service, with the operator in its place."""
    made = with_principal(cluster, security, OPERATOR)
    password, keystore = made.files.password(OPERATOR), made.files.keystore(OPERATOR)
    config = yaml.safe_load(cluster.sandbox.layout.rlm_config(1).read_text())
    config |= service_settings(made.identity(OPERATOR), password, keystore)
    path = folder / "operator.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def _losses(verbs: Verbs, cluster: PrincipalCluster, topic: str) -> None:
    """A segment is gone from the store, and records from the broker, past service and proxy. What
    only a frozen partition needs is refused.
    """
    where = (topic, "-p", "0")
    verbs.wait("partition", "adopt", *where, "--yes", says="is not frozen", status=2)
    verbs.wait("partition", "discard", *where, says="is not frozen", status=2)
    lost, objects = finished_segments(cluster, topic)[0], objects_of(cluster)
    [name] = [
        name
        for name in names_of(objects, topic)
        if f"/{lost.start_offset:020}-" in name and name.endswith(RECORDS)
    ]
    objects.delete([name])
    verbs.wait("partition", "accept-loss", *where, "--yes", says="It is on record now.")
    end = TopicPartition(topic, 0, cluster.log_end(topic))
    moved = cluster.admin.delete_records([end])[end].result(120).low_watermark
    assert moved == end.offset
    verbs.wait("topics", "adopt-log-start", *where, "--yes", says=f"{topic}-0")
    cluster.wait_for(
        lambda: cluster.status(topic)["remote_log_start_offset"] == moved, "the new remote start"
    )
