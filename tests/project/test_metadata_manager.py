"""Each method of RemoteLogMetadataManager has a caller, and each of Kafka's is accounted for."""

import re

from kip405.contracts import RemoteLogMetadataManager
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from tests.project.tree import PACKAGES, ROOT, sources

KAFKAS = (
    "addRemoteLogSegmentMetadata",
    "updateRemoteLogSegmentMetadata",
    "remoteLogSegmentMetadata",
    "highestOffsetForEpoch",
    "putRemotePartitionDeleteMetadata",
    "listRemoteLogSegments",
    "onPartitionLeadershipChanges",
    "onStopPartitions",
    "remoteLogSize",
    "nextSegmentWithTxnIndex",
    "isReady",
)
"""Of org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager, Kafka 4.3."""

OF_THE_LOG = {"apply", "start_over", "go_live"}
"""Called by rlmm/metadata_log.py, as its Sink, and not as a method of a ledger."""


_USE = re.compile(r"\b_?(?:ledgers?|manager)\.([a-z]\w*)")
"""What is used of any `ledger`, `_ledger`, `ledgers` or `manager`."""


def public(of: type) -> set[str]:
    return {name for name in vars(of) if not name.startswith("_")}


def used_by_the_product() -> set[str]:
    found = (
        path for path in sources(with_tests=False) if path.relative_to(ROOT).parts[0] in PACKAGES
    )
    return {name for path in found for name in _USE.findall(path.read_text())}


def test_each_method_of_the_metadata_manager_has_a_caller() -> None:
    methods = public(RemoteLogMetadataManager) | public(TopicBasedRemoteLogMetadataManager)
    assert methods - OF_THE_LOG - used_by_the_product() == set()


def test_each_method_of_kafkas_is_here_or_has_its_reason() -> None:
    here = {
        re.sub("_(.)", lambda found: found[1].upper(), name)
        for name in public(RemoteLogMetadataManager)
    }
    explained = set(re.findall(r"\w+", RemoteLogMetadataManager.__doc__ or ""))
    assert [name for name in KAFKAS if name not in here | explained] == []


def test_the_rule_about_callers_can_fail() -> None:
    found = _USE.findall("self._ledger.publish(x)\nledger.view.other\nself.tombstone()")
    assert found == ["publish", "view"]
