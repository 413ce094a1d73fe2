"""The API of a secured cluster with api.authorization: kafka: callers may do what Kafka's ACLs say.

The principals are those of the sandbox: `reader` may read and describe every topic, `denied` may
do nothing, and the services ask the brokers with the rights of `rlm`.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import yaml

from kip405.acls import Acl, topic_acl
from kip405.batches import batch_headers
from rlm.api.authorizers import ACLS_VALID_MS
from rlm.api.call_metadata import call_metadata
from rlm.api.principals import token_hash
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.builders import secured_clients
from tests.sandbox_fixtures import patient
from tests.scenarios.acl_requests import NONE, REFUSED, bearer_token, with_token
from tests.scenarios.api_principals import ENTRIES, MAY, questions
from tests.scenarios.authorizer import binding_of, filter_of
from tests.scenarios.cluster import fresh
from tests.scenarios.test_secured import PrincipalCluster

pytestmark = pytest.mark.integration

SERVICES = "the-token-of-the-services"
OK, DENIED = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED
INVALID = grpc.StatusCode.INVALID_ARGUMENT
_AGAIN = tuple(
    getattr(grpc.StatusCode, name)
    for name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
)
TIMESTAMPS = (-1, -2, -3, -4, -5, -6, 1)
SOON_S = ACLS_VALID_MS / 1_000 + 120


class ApiCluster(PrincipalCluster):
    """Calls of principals, each with its own token."""

    def call(self, name: str, request: Any, who: str) -> tuple[grpc.StatusCode, Any]:
        """The status of a call, and its answer, or its rows, or the words of its error; asked again
        where that says so.
        """
        answered: list[tuple[grpc.StatusCode, Any]] = []

        def is_answered() -> bool:
            answered[:] = [self._called(name, request, who)]
            return answered[0][0] not in _AGAIN

        self.wait_for(is_answered, f"an answer to {name} of {who}")
        return answered[0]

    def _called(self, name: str, request: Any, who: str) -> tuple[grpc.StatusCode, Any]:
        token = SERVICES if who == SERVICES else f"{who}-token"
        with grpc.insecure_channel(self.sandbox.json["brokers"][0]["grpc"]) as channel:
            admin, fetch = AdminServiceStub(channel), FetchServiceStub(channel)
            call = getattr(admin if hasattr(admin, name) else fetch, name)
            try:
                found = call(request, metadata=call_metadata("somebody", token), timeout=60)
                return OK, found if hasattr(found, "DESCRIPTOR") else list(found)
            except grpc.RpcError as error:
                failed = cast(grpc.Call, error)
                return failed.code(), failed.details()

    def first_offset(self, topic: str, who: str) -> tuple[grpc.StatusCode, Any]:
        """The base offset of the first batch that a Fetch from 0 gets."""
        ref = fetch_pb2.TopicRef(name=topic)
        request = fetch_pb2.FetchRequest(topic=ref, start_offset=0, end_offset=10)
        status, found = self.call("Fetch", request, who)
        if status is not OK:
            return status, found
        batches = b"".join(one.batches for one in found)
        return status, next(header.base_offset for _, header in batch_headers(batches))

    def audited(self) -> list[dict[str, Any]]:
        lines = (self.sandbox.layout.rlm_state(1) / "audit.log").read_text("utf-8").splitlines()
        return [row for row in map(json.loads, lines) if row["event"] == "command"]

    async def broker_errors(self, name: str, topic: str) -> dict[str, int]:
        """What the bare broker answers to each question of a principal."""
        address = f"127.0.0.1:{self.sandbox.state.ports[1].direct}"
        async with with_token(address, bearer_token(self.sandbox, name)) as client:
            return {
                what: _error_of(await one.ask(client, topic, b"")) for what, one in questions(topic)
            }

    def grant(self, topic: str) -> None:
        """All ACLs of `ENTRIES`, until the broker knows the last one: they arrive in order."""
        for name, entries in ENTRIES.items():
            bindings = [entry.binding(name, topic) for entry in entries]
            for created in self.admin.create_acls(bindings).values() if bindings else ():
                created.result(120)
        last = list(ENTRIES)[-1]
        self.wait_for(
            lambda: asyncio.run(self.broker_errors(last, topic))["epochs"] == NONE, "the ACLs"
        )

    def add(self, acl: Acl) -> None:
        for created in self.admin.create_acls([binding_of(acl)]).values():
            created.result(120)

    def remove(self, acl: Acl) -> None:
        for deleted in self.admin.delete_acls([filter_of(acl)]).values():
            assert list(deleted.result(120)), f"there was no {acl}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiCluster]:
    folder = tmp_path_factory.mktemp("callers")
    tokens = {name: token_hash(f"{name}-token") for name in ("reader", "denied", *ENTRIES)}
    names = {name: {"tokens": [one]} for name, one in tokens.items()}
    files = {"api.token.file": SERVICES, "api.principals.file": yaml.safe_dump(names)}
    overrides = [Override(scope="rlm", key="api.authorization", value="kafka")]
    for key, content in files.items():
        path: Path = folder / key
        path.write_text(content)
        overrides.append(Override(scope="rlm", key=key, value=str(path)))
    spec = SandboxSpec(security="sasl_plaintext", jvm="quick", overrides=tuple(overrides))
    made = Sandbox.up(tmp_path_factory.mktemp("secured"), patient(spec))
    try:
        admin = secured_clients.librdkafka(made.json, "admin", proxy=True)
        with ApiCluster(made, admin) as running, pytest.MonkeyPatch.context() as patched:
            patched.setenv("RLM_TOKEN_FILE", str(folder / "api.token.file"))
            yield running
    finally:
        made.down(delete=True)


@pytest.fixture(scope="module")
def trimmed(cluster: ApiCluster) -> str:
    """A topic whose first records are remote only."""
    topic = fresh("rights")
    cluster.create_topic(topic)
    cluster.fill(topic, mib=4)
    cluster.enable(topic)
    cluster.wait_trimmed(topic)
    return topic


def test_without_read_no_data_and_without_describe_no_offset(
    cluster: ApiCluster, trimmed: str
) -> None:
    assert cluster.first_offset(trimmed, "reader") == (OK, 0)
    ref = fetch_pb2.TopicRef(name=trimmed)
    asked: list[tuple[str, Any]] = [
        ("Fetch", fetch_pb2.FetchRequest(topic=ref)),
        ("Fetch", fetch_pb2.FetchRequest(topic=ref, tiers=fetch_pb2.REMOTE_ONLY)),
        ("DescribePartition", fetch_pb2.DescribePartitionRequest(topic=ref)),
        ("ListSegments", fetch_pb2.ListSegmentsRequest(topic=ref)),
        ("DescribeRemoteLog", fetch_pb2.DescribeRemoteLogRequest(topic=ref)),
        ("Status", pb.StatusRequest(topic=trimmed)),
        ("DescribeTopic", pb.DescribeTopicRequest(topic=trimmed)),
        ("DescribeTopics", fetch_pb2.DescribeTopicsRequest(topics=[trimmed])),
        *(
            ("ListOffsets", fetch_pb2.ListOffsetsRequest(topic=ref, timestamp=one, tiers=tiers))
            for one in TIMESTAMPS
            for tiers in (fetch_pb2.ALL_TIERS, fetch_pb2.REMOTE_ONLY)
        ),
    ]
    for name, request in asked:
        # REMOTE_ONLY does not know every special timestamp, which is no matter of rights.
        assert cluster.call(name, request, "reader")[0] in (OK, INVALID), (name, request)
        status, words = cluster.call(name, request, "denied")
        assert status is DENIED, (name, request, words)
        assert "denied has no right " in words
    for who, topics in (("reader", [trimmed]), ("denied", [])):
        _, found = cluster.call("ListTopics", pb.ListTopicsRequest(), who)
        assert [row.topic for row in found.topics] == topics
    status = cluster.call("Fetch", fetch_pb2.FetchRequest(topic=ref), "unknown")[0]
    assert status is grpc.StatusCode.UNAUTHENTICATED


def _error_of(answer: Any) -> int:
    return int(answer["error_code"] if isinstance(answer, dict) else answer[0])


def test_g8_the_api_allows_a_principal_what_a_bare_broker_allows_it(
    cluster: ApiCluster, trimmed: str
) -> None:
    """Only what is allowed is compared: the tiers show in the answers themselves."""
    cluster.grant(trimmed)
    for name in ENTRIES:
        errors = asyncio.run(cluster.broker_errors(name, trimmed))
        for what, question in questions(trimmed):
            allowed = errors[what] != REFUSED
            assert allowed == (name in MAY[question.right]), (name, what, errors[what])
            for call, request in question.calls:
                status, found = cluster.call(call, request, name)
                # REMOTE_ONLY does not know every special timestamp, which is no matter of rights.
                assert status in ((OK, INVALID) if allowed else (DENIED,)), (name, request, found)


def test_commands_need_their_acl_and_leave_their_line(cluster: ApiCluster, trimmed: str) -> None:
    freeze = pb.FreezeRequest(topic=trimmed, why="a try")
    status, words = cluster.call("Freeze", freeze, "reader")
    assert (status, "reader has no right operate on topic" in words) == (DENIED, True)
    before = len(cluster.audited())
    alter = Acl(
        resource_type="Topic", resource_name=trimmed, operation="Alter", principal="User:reader"
    )
    cluster.add(alter)
    cluster.wait_for(
        lambda: cluster.call("Freeze", freeze, "reader")[0] is OK, "the right to freeze", SOON_S
    )
    assert cluster.call("Unfreeze", pb.FreezeRequest(topic=trimmed), SERVICES)[0] is OK
    found = [
        (row["command"], row["by"], row["by_is_proven"], row["from"])
        for row in cluster.audited()[before:]
    ]
    assert found == [
        ("Freeze", "reader", True, "127.0.0.1"),
        ("Unfreeze", "somebody", False, "127.0.0.1"),
    ]


def test_a_right_that_is_taken_away_ends_reads_and_leaves_offsets(
    cluster: ApiCluster, trimmed: str
) -> None:
    read = topic_acl("Read", "*")
    mine = Acl(
        resource_type=read.resource_type,
        resource_name=read.resource_name,
        operation=read.operation,
        principal="User:reader",
    )
    cluster.remove(mine)
    try:
        cluster.wait_for(
            lambda: cluster.first_offset(trimmed, "reader")[0] is DENIED, "a refusal", SOON_S
        )
        request = fetch_pb2.ListOffsetsRequest(topic=fetch_pb2.TopicRef(name=trimmed), timestamp=-2)
        status, found = cluster.call("ListOffsets", request, "reader")
        assert (status, found.offset) == (OK, 0)
    finally:
        cluster.add(mine)
