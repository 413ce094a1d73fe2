"""Spark on secured clusters: a topic of which most is remote only, with transactions that were
aborted, read by a principal that has the least rights of Spark and no other.

The API has TLS, knows callers by their tokens, and allows what the brokers' ACLs allow. Where
brokers know clients by certificates, the API asks for these too.
"""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc
import pytest
import yaml
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql import DataFrame, SparkSession

from rlm.api.call_metadata import call_metadata
from rlm.api.principals import token_hash
from rlm.clock import new_uuid
from rlm.plans.rights import Role, Topics, least_acls
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rlm_sandbox.files import write_atomically
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.clients import client_properties
from rlm_sandbox.security.cluster_security import ClusterSecurity, security_of
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import ADMIN, DENIED, SERVICE
from rlm_sandbox.spec import Layout, Override, SandboxSpec
from rsm_plugins.contract.tls import Tls
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.mixed import Load, Mixed
from tests.scenarios.new_principals import grant, with_principal
from tests.scenarios.test_secured import PrincipalCluster
from tests.spark.conftest import trimmed_to_active
from tests.spark.lab import COMMITTED, Lab, Seen, assert_equal, expected, failure, seen

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

SPARK, WITHOUT_READ = "spark", "spark-without-read"
WITH_HEADERS = {**COMMITTED, "includeHeaders": "true"}
SOON = {"kafkaConsumer.pollTimeoutMs": "3000"}
"""For what is refused at once, however long a query would wait for data."""

_PARTITIONS = 2
_MIB = 10
_OFFSETS_PER_TRIGGER = 1_500
_CALL_S = 20
_STREAM_S = 240
_REFUSED_BY_KAFKA = "topicauthorizationfailed"


class TokenFiles:
    """The token of each principal and that of the services, and the API's file of principals."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self._folder = folder
        self._accepted = {name: [_token()] for name in names}
        for name, [token] in self._accepted.items():
            self.show(name, token)
        self._write_principals()
        write_atomically(self.of_services, _token(), private=True)

    @property
    def principals(self) -> Path:
        return self._folder / "principals.yaml"

    @property
    def of_services(self) -> Path:
        return self._folder / "of-services"

    def of(self, name: str) -> Path:
        """The file with the token that a principal shows."""
        return self._folder / f"{name}.token"

    def show(self, name: str, token: str) -> None:
        write_atomically(self.of(name), token, private=True)

    def accept(self, name: str, *tokens: str) -> None:
        """From now on these alone are the principal's."""
        self._accepted[name] = list(tokens)
        self._write_principals()

    def _write_principals(self) -> None:
        known = {
            f"User:{name}": {"tokens": [token_hash(one) for one in tokens]}
            for name, tokens in self._accepted.items()
        }
        write_atomically(self.principals, yaml.safe_dump(known))


def _token() -> str:
    return new_uuid().raw.hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """`security` has the principals of these tests, too. `tls`: how the API is called."""

    cluster: PrincipalCluster
    security: ClusterSecurity
    tokens: TokenFiles
    tls: Tls

    def options(self, name: str) -> dict[str, str]:
        """Those of a query as this principal, in Kafka's words where it has them."""
        files = self.security.files
        properties = client_properties(self.security.identity(name), files.keystore(name))
        kafka = {f"kafka.{key}": value for key, value in properties.items()}
        api = {"rlm.tls.ca.file": files.ca, "rlm.token.file": self.tokens.of(name)}
        if self.tls.cert_file is not None:
            api["rlm.tls.cert.file"] = files.certificate(name)
            api["rlm.tls.key.file"] = files.key(name)
        return {**kafka, **{key: str(path) for key, path in api.items()}}

    def lab(self, spark: SparkSession, name: str) -> Lab:
        return Lab(spark=spark, cluster=self.cluster, security=self.options(name))

    def replace_token(self, name: str) -> str:
        """As an operator does it; returns the old token when the API refuses it."""
        old, new = self.tokens.of(name).read_text("ascii"), _token()
        self.tokens.accept(name, old, new)
        self.cluster.wait_for(lambda: self._answer_to(new) is grpc.StatusCode.OK, "the new token")
        self.tokens.show(name, new)
        self.tokens.accept(name, new)
        refused = grpc.StatusCode.UNAUTHENTICATED
        self.cluster.wait_for(lambda: self._answer_to(old) is refused, "the old token's end")
        return old

    def _answer_to(self, token: str) -> grpc.StatusCode:
        """The status of a call that every known caller may make."""
        address = self.cluster.sandbox.json["brokers"][0]["grpc"]
        with grpc.secure_channel(address, self.tls.credentials()) as channel:
            ask = FetchServiceStub(channel).DescribeEndpoints
            try:
                ask(
                    pb.DescribeEndpointsRequest(),
                    metadata=call_metadata("tests", token),
                    timeout=_CALL_S,
                )
            except grpc.RpcError as error:
                return cast(grpc.Call, error).code()
        return grpc.StatusCode.OK


@pytest.fixture(scope="module", params=["sasl_ssl", "mtls"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """One broker. The API shows the certificate of the sandbox's service; commands of `rlm` show
    the services' token, and admin's certificate where one is asked for.
    """
    root = tmp_path_factory.mktemp("secured")
    files = SecurityFiles(folder=Layout(root=root).security)
    tokens = TokenFiles(tmp_path_factory.mktemp("tokens"), (SPARK, WITHOUT_READ, DENIED))
    settings: dict[str, Path | str] = {
        "grpc.tls.cert.file": files.certificate(SERVICE),
        "grpc.tls.key.file": files.key(SERVICE),
        "grpc.tls.ca.file": files.ca,
        "api.token.file": tokens.of_services,
        "api.principals.file": tokens.principals,
        "api.authorization": "kafka",
    }
    tls = Tls(ca_file=files.ca)
    if request.param == "mtls":
        settings["grpc.tls.client.ca.file"] = files.ca
        tls = Tls(ca_file=files.ca, cert_file=files.certificate(ADMIN), key_file=files.key(ADMIN))
    overrides = tuple(
        Override(scope="rlm", key=key, value=str(value)) for key, value in settings.items()
    )
    spec = SandboxSpec(security=request.param, jvm="quick", overrides=overrides)
    made = Sandbox.up(root, with_workers(spec))
    try:
        with PrincipalCluster.of_sandbox(made) as cluster, pytest.MonkeyPatch.context() as patch:
            for variable, path in _environment(tokens, tls).items():
                patch.setenv(variable, str(path))
            security = security_of(made.layout, spec)
            assert security is not None
            for name in (SPARK, WITHOUT_READ):
                security = with_principal(cluster, security, name)
            yield Secured(cluster=cluster, security=security, tokens=tokens, tls=tls)
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


def _environment(tokens: TokenFiles, tls: Tls) -> dict[str, Path]:
    """With which commands of `rlm` call the API."""
    files = {
        "RLM_TOKEN_FILE": tokens.of_services,
        "RLM_TLS_CA": tls.ca_file,
        "RLM_TLS_CERT": tls.cert_file,
        "RLM_TLS_KEY": tls.key_file,
    }
    return {variable: path for variable, path in files.items() if path is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A topic in both tiers; `starts`: where the broker's log of each partition begins."""

    topic: str
    mixed: Mixed
    starts: tuple[int, ...]


@pytest.fixture(scope="module")
def archive(secured: Secured) -> Archive:
    """Only SPARK has all rights that Spark needs on it; WITHOUT_READ has them but for Read."""
    cluster, topic, partitions = secured.cluster, fresh("archive"), range(_PARTITIONS)
    cluster.create_topic(topic, partitions=_PARTITIONS)
    mixed = Load(cluster, topic, _PARTITIONS).run(_MIB)
    for partition in partitions:
        is_decided = functools.partial(_is_decided, cluster, topic, partition)
        cluster.wait_for(is_decided, f"the end of all transactions in {topic}-{partition}")
    cluster.enable(topic, "--trim", "--local-retention-bytes", "1")
    starts = tuple(trimmed_to_active(cluster, topic, partition) for partition in partitions)
    ends = [cluster.log_end(topic, partition) for partition in partitions]
    assert sum(starts) >= 0.6 * sum(ends), f"only {starts} of {ends} are remote only"
    assert any(offset < starts[partition] for partition, offset in mixed.aborted)
    for name in (SPARK, WITHOUT_READ):
        acls = least_acls(Role.SPARK, f"User:{name}", Topics(names=(topic,)))
        given = [acl for acl in acls if name == SPARK or acl.operation != "Read"]
        grant(cluster, secured.security, given)
    return Archive(topic=topic, mixed=mixed, starts=starts)


def _is_decided(cluster: Cluster, topic: str, partition: int) -> bool:
    """Whether all markers are in the log: brokers write them after they have answered."""
    topic_partition = TopicPartition(topic, partition)
    asked = cluster.admin.list_offsets(
        {topic_partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
    )
    stable_end = int(asked[topic_partition].result(120).offset)
    return stable_end == cluster.log_end(topic, partition)


@pytest.fixture
def lab(spark: SparkSession, secured: Secured) -> Lab:
    """Its queries are SPARK."""
    return secured.lab(spark, SPARK)


@pytest.mark.parametrize("mode", ["kafka_preferred", "remote_preferred", "remote_only"])
def test_a_batch_reads_what_was_committed(lab: Lab, archive: Archive, mode: str) -> None:
    rows = archive.mixed.committed
    assert len(rows) < len(archive.mixed.all_rows)
    if mode == "remote_only":
        rows = [row for row in rows if row.offset < archive.starts[row.partition]]
    frame = lab.read(archive.topic, {**WITH_HEADERS, "readMode": mode})
    assert_equal(seen(frame), expected(rows))


def test_a_stream_goes_on_with_a_new_token_when_its_old_one_counts_no_more(
    secured: Secured, lab: Lab, archive: Archive, folder: Path
) -> None:
    """One query; the token is replaced between its first two micro-batches. Most of what it has yet
    to read is remote only.
    """
    first: list[Seen] = []
    withdrawn: list[str] = []
    batches: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        batches.append(number)
        batch.write.mode("append").parquet(str(folder / "out"))
        if number == 0:
            first.extend(seen(batch))
            withdrawn.append(secured.replace_token(SPARK))

    limit = {"maxOffsetsPerTrigger": str(_OFFSETS_PER_TRIGGER)}
    query = (
        lab.stream(archive.topic, {**WITH_HEADERS, **limit})
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(_STREAM_S), "the stream did not end"
    finally:
        query.stop()
    assert len(batches) > 2
    assert first
    assert all(row.offset < archive.starts[row.partition] for row in first)
    assert_equal(seen(lab.written(folder)), expected(archive.mixed.committed))
    [old] = withdrawn
    (folder / "old").write_text(old, encoding="ascii")
    with_old = {"readMode": "remote_only", "rlm.token.file": str(folder / "old"), **SOON}
    assert "no valid token" in failure(lambda: lab.read(archive.topic, with_old))


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        (DENIED, "kafka_only", _REFUSED_BY_KAFKA),
        (DENIED, "remote_only", "has no right describe on topic"),
        (WITHOUT_READ, "kafka_only", _REFUSED_BY_KAFKA),
        (WITHOUT_READ, "remote_only", "has no right read on topic"),
    ],
)
def test_without_its_rights_a_query_is_refused_by_brokers_and_by_the_api(
    secured: Secured, spark: SparkSession, archive: Archive, name: str, mode: str, words: str
) -> None:
    other = secured.lab(spark, name)
    assert words in failure(lambda: other.read(archive.topic, {"readMode": mode, **SOON}))
