"""What an operator is shown before a partition is discarded: also what goes of the history that the
leader's log has (H4).
"""

from pathlib import Path

from rlm.plans.discard import OwnPart
from tests.rlm.tasks.test_h04_discard import KEY, Site
from tests.rlm.tasks.test_verification import segment


async def test_h04_what_goes_of_the_leaders_own_history_is_shown(tmp_path: Path) -> None:
    """The log that was copied has lost its end: all that is remote from 150 on is its history."""
    site = Site(tmp_path)
    await site.prepare()
    nothing = OwnPart(segments=0, size_bytes=0, only_remote_records=0)
    assert (await site.discards.plan(KEY)).own == nothing
    site.rig.broker.elect(1, 0)
    site.log_of(0, {0: 0}, end=320)
    plan = await site.discards.plan(KEY)
    assert plan.own == OwnPart(
        segments=4,
        size_bytes=plan.remote.size_bytes - segment(site.rig, 0).segment_size_bytes,
        only_remote_records=500 - 320,
    )
    site.rig.broker.log_start_offset = 250
    plan = await site.discards.plan(KEY)
    assert plan.own.only_remote_records == 500 - 320 + 250 - 150
