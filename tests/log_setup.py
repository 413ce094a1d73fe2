"""Each test begins with the logging that the one before it found.

Commands that run within a test set structlog up for their whole process. A logger that was first
used meanwhile would write to that test's standard error for ever, and later tests would wait for
log lines in vain.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import structlog

_configure = structlog.configure


def _without_cache(*, cache_logger_on_first_use: bool | None = None, **given: Any) -> None:
    _configure(**given, cache_logger_on_first_use=False)


structlog.configure = cast(Any, _without_cache)


@contextmanager
def restored() -> Iterator[None]:
    """On leaving, the levels, handlers and processors are those from before."""
    former = structlog.get_config()
    root, level = logging.getLogger(), logging.getLogger().level
    handlers, aiokafka = root.handlers[:], logging.getLogger("aiokafka").level
    try:
        yield
    finally:
        structlog.configure(**former)
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("aiokafka").setLevel(aiokafka)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fixtures that log as long as they live set up nothing; what a test sets up ends with it."""
    with restored():
        return (yield)
