"""Session-wide servers that end when their last test is over, not with the session: what nobody
needs any more takes processor time from all that follows.

Only for fixtures that tests name as arguments (their own, or their fixtures'): who asks by
`getfixturevalue` is not seen here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

_Ends = dict[str, Callable[[], None]]
_ENDS = pytest.StashKey[_Ends]()
_LAST = pytest.StashKey[dict[str, pytest.Item]]()


@contextmanager
def ended_early(request: pytest.FixtureRequest, end: Callable[[], None]) -> Iterator[None]:
    """In a fixture around its `yield`: `end` is called once, after the last test that uses it."""
    name = request.fixturename
    assert name is not None
    ends = request.config.stash.setdefault(_ENDS, {})
    ends[name] = end
    try:
        yield
    finally:
        if ends.pop(name, None) is not None:
            end()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the last user of every fixture."""
    users = {name: item for item in session.items for name in getattr(item, "fixturenames", ())}
    session.config.stash[_LAST] = users


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End what the test was the last user of; its own fixtures are torn down by now."""
    last = item.config.stash.get(_LAST, {})
    ends = item.config.stash.get(_ENDS, {})
    for name in [name for name in ends if last.get(name) is item]:
        ends.pop(name)()
