"""Events go where the process logs, and never to its standard output unless it says so."""

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from rsm_plugins.event_log import EventLog
from tests.log_setup import restored

_LOG = EventLog("rsm_plugins.of_test")


def test_a_program_that_only_reads_a_store_has_its_output_to_itself(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with restored():
        structlog.reset_defaults()
        with caplog.at_level(logging.INFO, "rsm_plugins"):
            _LOG.info("s3_retry", tried=1, location="s3://b/100%d")
            _LOG.warning("renewal_failed", error="no such file")
    assert capsys.readouterr() == ("", "")
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("rsm_plugins.of_test", "INFO", "event=s3_retry tried=1 location=s3://b/100%d"),
        ("rsm_plugins.of_test", "WARNING", "event=renewal_failed error=no such file"),
    ]


def test_where_structlog_is_configured_it_has_the_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with capture_logs() as logs:
        _LOG.info("s3_retry", tried=1)
        _LOG.warning("renewal_failed")
    assert logs == [
        {"event": "s3_retry", "tried": 1, "log_level": "info"},
        {"event": "renewal_failed", "log_level": "warning"},
    ]
    assert caplog.records == []
