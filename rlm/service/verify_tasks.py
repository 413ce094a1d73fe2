"""Wires verification of one service, on request and at intervals."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.broker.leadership import LedPartition
from rlm.service.dependencies import Dependencies
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.tasks.deep_check import DeepCheck
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.lost_segments import LostSegments
from rlm.tasks.schedule import led_rows
from rlm.tasks.unlisted_segments import UnlistedSegments, stores_ever_used
from rlm.tasks.verification import PartitionVerifier
from rlm.tasks.verify_runs import VerifyRuns
from rlm.tasks.verify_watch import VerifyWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTasks:
    """Verification on request, and at intervals."""

    runs: VerifyRuns
    watch: VerifyWatch
    deep_check: DeepCheck


def verify_tasks(
    dependencies: Dependencies, evidence: StoreEvidence, lost: LostSegments
) -> VerifyTasks:
    """Verification of what this node leads."""
    metadata, config = dependencies.metadata, dependencies.config

    def led() -> Sequence[LedPartition]:
        """The partitions of enabled and kept topics that we lead."""
        return led_rows(dependencies.leadership, metadata.settings, config.node_id)

    deep_check = DeepCheck(
        stores=dependencies.stores.stores,
        evidence=evidence,
        threads=dependencies.threads.evidence,
        clock=dependencies.clock,
        bytes_per_second=config.verify_max_bytes_per_second,
    )
    verifier = PartitionVerifier(
        snapshots=dependencies.snapshots,
        broker=dependencies.broker,
        ledger=metadata.manager,
        settings=metadata.settings,
        evidence=evidence,
        deep_check=deep_check,
        unlisted=unlisted_segments(dependencies),
        lost=lost,
        clock=dependencies.clock,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )
    return VerifyTasks(
        runs=VerifyRuns(
            verifier=verifier, led=led, ledger=metadata.manager, clock=dependencies.clock
        ),
        watch=VerifyWatch(
            verifier=verifier,
            led=led,
            losses=dependencies.tier.losses,
            clock=dependencies.clock,
            interval_ms=config.verify_interval_ms,
        ),
        deep_check=deep_check,
    )


def unlisted_segments(dependencies: Dependencies) -> UnlistedSegments:
    """In the stores of this service, as far as they are known by now."""
    return _unlisted(dependencies, dependencies.stores.stores.known)


def unlisted_anywhere(dependencies: Dependencies) -> UnlistedSegments:
    """In all stores that were ever used, which alone proves that nothing is there (H15)."""

    def every_store() -> tuple[Uuid, ...]:
        view = dependencies.metadata.settings.view
        return stores_ever_used(view, dependencies.stores.stores.known())

    return _unlisted(dependencies, every_store)


def _unlisted(
    dependencies: Dependencies, store_ids: Callable[[], Collection[Uuid]]
) -> UnlistedSegments:
    return UnlistedSegments(
        stores=dependencies.stores.stores,
        store_ids=store_ids,
        ledger=dependencies.metadata.manager,
        cluster_id=dependencies.config.cluster_id,
    )
