"""Every planted bug, by the part of the product that guards against it."""

from tests.mutants import (
    of_cleaning,
    of_cluster_retention,
    of_copy_order,
    of_copying,
    of_deletions,
    of_durability,
    of_expiry,
    of_kip405,
    of_ledger,
    of_ledger_rebuild,
    of_metadata,
    of_offload,
    of_offsets,
    of_plans,
    of_proxy,
    of_reading,
    of_reconcile,
    of_stores,
    of_topics,
    of_trim,
    of_unreferenced,
    of_verification,
)
from tests.mutants.edits import Edit

EDITS: tuple[Edit, ...] = (
    *of_kip405.EDITS,
    *of_plans.EDITS,
    *of_offsets.EDITS,
    *of_offload.EDITS,
    *of_copy_order.EDITS,
    *of_copying.EDITS,
    *of_cleaning.EDITS,
    *of_cluster_retention.EDITS,
    *of_durability.EDITS,
    *of_trim.EDITS,
    *of_unreferenced.EDITS,
    *of_verification.EDITS,
    *of_expiry.EDITS,
    *of_ledger.EDITS,
    *of_ledger_rebuild.EDITS,
    *of_metadata.EDITS,
    *of_reading.EDITS,
    *of_reconcile.EDITS,
    *of_stores.EDITS,
    *of_topics.EDITS,
    *of_deletions.EDITS,
    *of_proxy.EDITS,
)
MOST_HARMLESS = 5
"""Survivors with a reason why they are no bugs: more of them are a sign of a poor table."""
