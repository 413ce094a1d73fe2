"""The site of one test."""

from pathlib import Path

import pytest

from tests.rlm.diagnosis.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
