"""The table of rights: it has every method of the protos, and each request needs what it says."""

from typing import Any

import pytest
from google.protobuf.message import Message

from rlm.api.authorization import needs_of
from rlm.api.method_rights import METHOD_RULES
from rlm.plans.api_rights import ApiRight, Need
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2

PROTOS = (pb.DESCRIPTOR, fetch_pb2.DESCRIPTOR)
D, R, P, C, X = (
    ApiRight.DESCRIBE,
    ApiRight.READ,
    ApiRight.OPERATE,
    ApiRight.CONFIGURE,
    ApiRight.DELETE,
)
ID = "an-id"


class Names:
    """One topic, `orders`, which is also known as `an-id`."""

    async def of_ref(self, ref: fetch_pb2.TopicRef) -> str:
        return ref.name or "orders"

    def meant_by(self, text: str) -> tuple[str, ...]:
        return ("orders",) if text == ID else (text,)


def methods() -> list[Any]:
    return [
        method
        for file in PROTOS
        for service in file.services_by_name.values()
        for method in service.methods
    ]


def full_name(method: Any) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_every_method_of_the_protos_has_its_right_and_no_other() -> None:
    assert sorted(METHOD_RULES) == sorted(map(full_name, methods()))
    assert all(rule.words for rule in METHOD_RULES.values())


def test_a_method_without_needs_shows_nothing_of_a_topic_or_takes_it_out() -> None:
    """What is asked without a right must have `keep`, or answer about services alone."""
    free = {
        name.rpartition("/")[2]
        for name, rule in METHOD_RULES.items()
        if rule.by_ref is None and rule.keep is None and rule.needs.__name__ == "<lambda>"
    }
    assert free == {
        "DescribeCosts",
        "DescribeEndpoints",
        "Diagnose",
        "InspectStores",
        "ListClients",
        "ListCopyLimits",
        "ReloadConfig",
        "SetCopyLimit",
    }
    kept = {name.rpartition("/")[2] for name, rule in METHOD_RULES.items() if rule.keep is not None}
    assert kept == {
        "DescribeTopics",
        "Freeze",
        "ListCandidates",
        "ListDeletions",
        "ListEvents",
        "ListTopics",
        "Purge",
        "Status",
        "Unfreeze",
    }


REF = fetch_pb2.TopicRef(name="orders")
TARGETS = [pb.CopyTarget(topic="orders"), pb.CopyTarget(topic="payments")]
PLAN_ORDERS = pb.PlanTopicRequest(enable=pb.EnableTopicRequest(topic="orders"))
NEEDED: list[tuple[str, Message, list[tuple[ApiRight, str]]]] = [
    ("EnableTopic", pb.EnableTopicRequest(topic="orders"), [(C, "orders")]),
    ("PlanRetention", pb.EnableTopicRequest(topic="orders"), [(D, "orders")]),
    ("PlanTopic", PLAN_ORDERS, [(C, "orders")]),
    ("DescribeCosts", pb.DescribeCostsRequest(), [(D, "*")]),
    ("AcceptRetention", pb.AcceptRetentionRequest(topic="orders"), [(D, "orders")]),
    ("AcceptRetention", pb.AcceptRetentionRequest(topic="o", retention_ms=1), [(C, "o")]),
    ("AcceptRetention", pb.AcceptRetentionRequest(topic="o", retention_bytes=1), [(C, "o")]),
    ("DisableTopic", pb.DisableTopicRequest(topic="orders"), [(C, "orders")]),
    ("DisableTopic", pb.DisableTopicRequest(topic="o", delete_remote=True), [(C, "o"), (X, "o")]),
    ("DisableTopic", pb.DisableTopicRequest(topic=ID), [(C, "orders")]),
    (
        "DisableTopic",
        pb.DisableTopicRequest(topic=ID, delete_remote=True),
        [(C, "orders"), (X, "orders")],
    ),
    ("SetTrim", pb.SetTrimRequest(topic="orders"), [(C, "orders")]),
    ("ListTopics", pb.ListTopicsRequest(), []),
    ("DescribeTopic", pb.DescribeTopicRequest(topic="orders"), [(D, "orders")]),
    ("ListCandidates", pb.ListCandidatesRequest(), []),
    ("Freeze", pb.FreezeRequest(), [(P, "*")]),
    ("Freeze", pb.FreezeRequest(topic="orders"), [(P, "orders")]),
    ("Freeze", pb.FreezeRequest(topic=ID), [(P, "orders")]),
    ("Unfreeze", pb.FreezeRequest(), [(P, "*")]),
    ("Unfreeze", pb.FreezeRequest(topic="orders"), [(P, "orders")]),
    ("Unfreeze", pb.FreezeRequest(topic=ID), [(P, "orders")]),
    ("ListCopyLimits", pb.ListCopyLimitsRequest(), [(D, "*")]),
    ("SetCopyLimit", pb.SetCopyLimitRequest(), [(P, "*")]),
    ("ReloadConfig", pb.ReloadConfigRequest(), [(C, "*")]),
    ("ListDeletions", pb.ListDeletionsRequest(), []),
    ("UndoDeletion", pb.UndoDeletionRequest(topic="orders"), [(C, "orders")]),
    ("UndoDeletion", pb.UndoDeletionRequest(topic=ID), [(C, "orders")]),
    ("Status", pb.StatusRequest(), []),
    ("Status", pb.StatusRequest(topic="orders"), [(D, "orders")]),
    ("InspectStores", pb.InspectStoresRequest(), [(D, "*")]),
    ("ListClients", pb.ListClientsRequest(topic="orders"), [(D, "*")]),
    ("AdoptPartition", pb.PartitionRequest(topic="orders"), [(X, "orders")]),
    ("DiscardPartition", pb.DiscardPartitionRequest(topic="orders"), [(D, "orders")]),
    ("DiscardPartition", pb.DiscardPartitionRequest(topic="o", confirm=True), [(X, "o")]),
    ("AdoptLogStart", pb.PartitionRequest(topic="orders"), [(X, "orders")]),
    ("AcceptLoss", pb.AcceptLossRequest(topic="orders"), [(D, "orders")]),
    ("AcceptLoss", pb.AcceptLossRequest(topic="orders", apply=True), [(X, "orders")]),
    ("Verify", pb.VerifyRequest(), [(P, "*")]),
    ("Verify", pb.VerifyRequest(topic="orders"), [(P, "orders")]),
    ("CopyClosed", pb.CopyClosedRequest(), [(P, "*")]),
    ("CopyClosed", pb.CopyClosedRequest(targets=TARGETS), [(P, "orders"), (P, "payments")]),
    ("ExplainPartition", pb.ExplainPartitionRequest(topic="orders"), [(D, "orders")]),
    ("PlanExpiry", pb.PlanExpiryRequest(topic="orders"), [(D, "orders")]),
    ("Diagnose", pb.DiagnoseRequest(), [(D, "*"), (P, "*")]),
    ("ListEvents", pb.ListEventsRequest(), []),
    ("ListEvents", pb.ListEventsRequest(topic="orders"), [(D, "orders")]),
    ("Purge", pb.PurgeRequest(topics=["orders"]), []),
    ("Purge", pb.PurgeRequest(confirm=True), [(X, "*")]),
    ("Purge", pb.PurgeRequest(topics=["o", ID], confirm=True), [(X, "o"), (X, "orders")]),
    ("ProveAccess", pb.ProveAccessRequest(topic="orders"), [(P, "orders")]),
    ("Fetch", fetch_pb2.FetchRequest(topic=REF), [(R, "orders")]),
    ("ListOffsets", fetch_pb2.ListOffsetsRequest(topic=REF), [(D, "orders")]),
    ("DescribeTopics", fetch_pb2.DescribeTopicsRequest(), []),
    ("DescribeTopics", fetch_pb2.DescribeTopicsRequest(topics=["o", "p"]), [(D, "o"), (D, "p")]),
    ("DescribeEndpoints", fetch_pb2.DescribeEndpointsRequest(), []),
    ("DescribePartition", fetch_pb2.DescribePartitionRequest(topic=REF), [(D, "orders")]),
    ("ListSegments", fetch_pb2.ListSegmentsRequest(topic=REF), [(D, "orders")]),
    ("DescribeRemoteLog", fetch_pb2.DescribeRemoteLogRequest(topic=REF), [(D, "orders")]),
    ("ReadObject", fetch_pb2.ReadObjectRequest(topic=REF), [(R, "orders")]),
    ("BuildRemoteLogAuxState", fetch_pb2.BuildRemoteLogAuxStateRequest(topic=REF), [(R, "orders")]),
    ("Copy", fetch_pb2.CopyRequest(topic=REF), [(P, "orders")]),
]
RULE_OF = {name.rpartition("/")[2]: rule for name, rule in METHOD_RULES.items()}


@pytest.mark.parametrize(("method", "request_", "expected"), NEEDED)
async def test_what_each_request_needs(
    method: str, request_: Message, expected: list[tuple[ApiRight, str]]
) -> None:
    found = await needs_of(RULE_OF[method], request_, Names())
    assert [(need.right, need.topic) for need in found] == expected


def test_every_method_is_among_the_requests_above() -> None:
    assert {method for method, _, _ in NEEDED} == {method.name for method in methods()}


def test_an_id_is_shown_to_the_caller_as_an_id() -> None:
    (need,) = RULE_OF["UndoDeletion"].needs(pb.UndoDeletionRequest(topic=ID), Names())
    assert str(need) == f"configure on topic {ID}"
    assert str(Need(right=X, topic="*")) == "delete on every topic"


CHANGING = {
    "EnableTopic",
    "DisableTopic",
    "SetTrim",
    "Freeze",
    "Unfreeze",
    "SetCopyLimit",
    "ReloadConfig",
    "UndoDeletion",
    "AdoptPartition",
    "AdoptLogStart",
    "CopyClosed",
    "Copy",
}


def test_what_changes_something_is_written_down_and_what_only_plans_is_not() -> None:
    changing = {method for method, request, _ in NEEDED if RULE_OF[method].changes(request)}
    sometimes = {"AcceptRetention", "DiscardPartition", "AcceptLoss", "Purge"}
    assert changing == CHANGING | sometimes
    for plan in (
        ("AcceptRetention", pb.AcceptRetentionRequest(topic="o")),
        ("DiscardPartition", pb.DiscardPartitionRequest(topic="o")),
        ("AcceptLoss", pb.AcceptLossRequest(topic="o")),
        ("Purge", pb.PurgeRequest(topics=["o"])),
    ):
        assert not RULE_OF[plan[0]].changes(plan[1]), plan
    unwritten = {name for name, rule in RULE_OF.items() if rule.never_waits}
    assert unwritten == {"Freeze", "Copy", "CopyClosed"}
