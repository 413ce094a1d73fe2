"""A store that denies one segment of a call: what it deleted of the others is recorded (H12)."""

from pathlib import Path

import pytest

from kip405.errors import Invalid, Unavailable
from kip405.segments import RemoteLogSegmentState, SegmentLocator
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID
from tests.rlm.tasks.test_segment_deletion import Permit, RefusingStore, copied

DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


class HoldingStore(RefusingStore):
    """As S3 answers for an object under a legal hold: no rights, so Unavailable."""

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        try:
            await super().delete_log_segment_data(locator)
        except Invalid as error:
            raise Unavailable("AccessDenied") from error


@pytest.mark.parametrize("late", [False, True], ids=["settled", "may be written"])
async def test_h12_what_a_store_deleted_is_recorded_though_it_denies_another_segment(
    rig: Rig, late: bool
) -> None:
    """Else nothing of a call were ever recorded while one of its segments is under a hold. A store
    that deletes is not away, so the next groups are deleted too.
    """
    segments = await copied(rig, 68)
    rig.shelf.stores[STORE_ID] = HoldingStore(rig.store, segments[1:2])
    result = await rig.deleter.delete(segments, Permit(rig).permit(late=late))
    assert result.stopped is None
    assert result.deleted == rig.audit.deleted == [segments[0], *segments[2:]]
    assert [str(error) for error in result.store_errors] == ["AccessDenied"]
    (left,) = rig.ledger.view.entries.values()
    assert (left.metadata.segment_id, left.state) == (segments[1].segment_id, DELETING)
