"""The store that tests of the layout `pinterest` write to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rsm_plugins.pinterest.writing import Written
from tests.rsm_plugins.stores import DIRECT, StoreRig, opened


@pytest.fixture
async def written(rig: StoreRig, tmp_path: Path) -> AsyncIterator[Written]:
    rig = rig.in_pinterests_form()
    async with opened(rig, DIRECT, tmp_path) as subject:
        await subject.ensure_identity()
        yield Written(subject, rig)
