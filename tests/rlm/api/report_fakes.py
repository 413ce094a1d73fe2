"""What one node measures, counts and remembers, as the calls that report ask for it."""

from collections.abc import Mapping

from kip405.errors import RemoteStorageError
from rlm.api.calls import Gate
from rlm.api.costs import ClusterCosts
from rlm.api.peers import Peers
from rlm.api.report_calls import Reports
from rlm.api.topic_plans import TopicPlans
from rlm.broker.answers import TopicDescription
from rlm.plans.costs import Prices
from rlm.plans.enabling import PartitionMeasure
from rlm.plans.retention import LocalRetention
from tests.rlm.topics.world import ServiceBroker, ServiceUnderTest


class ApiMeasures:
    """What a node has of each partition that it leads; `asked` is the local retention."""

    def __init__(self) -> None:
        self.found: dict[int, PartitionMeasure | RemoteStorageError] = {}
        self.asked: list[LocalRetention] = []

    async def own(
        self, topic: TopicDescription, retention: LocalRetention
    ) -> Mapping[int, PartitionMeasure | RemoteStorageError]:
        self.asked.append(retention)
        return self.found


class ApiReports:
    """Copies go at 1,000 bytes a second."""

    def __init__(self) -> None:
        self.measures = ApiMeasures()
        self.copy_limit = 1_000
        self.reads = 0
        self.prices = Prices()

    def of(
        self, gate: Gate, peers: Peers, service: ServiceUnderTest, broker: ServiceBroker
    ) -> Reports:
        return Reports(
            gate=gate,
            peers=peers,
            plans=TopicPlans(
                peers=peers,
                check=service.verbs,
                measures=self.measures,
                broker=broker,
                copy_limit=lambda: self.copy_limit,
            ),
            costs=ClusterCosts(
                peers=peers,
                settings=service.settings,
                ledger=service.ledger,
                prices=lambda: self.prices,
                part_bytes=lambda _topic: None,
                reads=lambda: self.reads,
                clock=service.clock,
                barrier_deadline_ms=1_000,
            ),
        )
