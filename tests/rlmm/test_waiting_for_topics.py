"""Who may not create our topics waits until others have, and says so."""

import asyncio

import pytest
import structlog

from rlmm.clients import ConnectionSettings
from rlmm.metadata_log import MetadataLog
from rlmm.topic import SETTINGS_TOPIC, TopicDescription


async def test_topics_that_are_not_there_are_waited_for_and_never_created() -> None:
    asked: list[str] = []
    sleeps = 0

    async def describe(name: str) -> TopicDescription | None:
        asked.append(name)
        return None

    async def sleep_ms(duration_ms: int) -> None:
        nonlocal sleeps
        sleeps += 1
        if sleeps == 3:
            raise asyncio.CancelledError

    log = MetadataLog(
        # Nobody listens there: to create a topic would fail with other words.
        connection=ConnectionSettings(bootstrap_servers=("127.0.0.1:1",), client_id="tests"),
        replication_factor=1,
        describe_topic=describe,
        now_ms=lambda: 0,
        sleep_ms=sleep_ms,
        may_create=False,
    )
    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await log.run()
    assert asked == [SETTINGS_TOPIC] * 3
    error_text = {str(row["error"]) for row in logs if row["event"] == "topics_not_ready"}
    assert error_text == {
        f"topic {SETTINGS_TOPIC} is not there (yet): a broker's service creates it"
    }
    assert not log.is_ready
