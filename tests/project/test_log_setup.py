"""What one test does to logging is gone for the next."""

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from rlm.service.lifetime import configure_service_logs
from tests.log_setup import restored

log = structlog.get_logger()


def test_a_logger_that_was_used_under_another_setup_is_heard(
    capsys: pytest.CaptureFixture[str],
) -> None:
    levels = [logging.getLogger(name).level for name in ("", "aiokafka")]
    handlers = logging.getLogger().handlers[:]
    with restored():
        configure_service_logs(level="error", log_format="console")
        log.error("first used here")
    assert "first used here" in capsys.readouterr().err
    with capture_logs() as logs:
        log.warning("heard")
    assert [one["event"] for one in logs] == ["heard"]
    assert [logging.getLogger(name).level for name in ("", "aiokafka")] == levels
    assert logging.getLogger().handlers == handlers
