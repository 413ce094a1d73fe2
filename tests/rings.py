"""The order of the rings of tests.

Unit tests come first, on as many workers as there are; integration tests follow as one group on one
worker, because each of them brings real Kafka processes up on a small machine.
"""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move integration tests behind the others and bind them to one worker, before xdist looks."""
    for item in items:
        if item.get_closest_marker("integration") is not None:
            item.add_marker(pytest.mark.xdist_group("integration"))
    items.sort(key=lambda item: item.get_closest_marker("integration") is not None)
