"""The blocking form: an interrupt takes no record away, and stop ends calls of other threads."""

import asyncio
import threading
from typing import Any

import pytest
from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import TopicPartition

from rlm_client import BlockingTieredStorageConsumer
from tests.tiered_reads.fake_kafka import FakeKafka

PARTITION = TopicPartition("t", 0)


def _options(kafka: FakeKafka) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap,
        "tiered_storage_mode": "kafka_only",
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 5,
    }


class _Interrupted:
    """A future whose answer has come when the thread that waits for it is interrupted."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def result(self) -> Any:
        self._future.result()
        raise KeyboardInterrupt

    def cancel(self) -> bool:
        return bool(self._future.cancel())


@pytest.mark.parametrize("name", ["getone", "getmany"])
def test_records_that_an_interrupt_took_away_come_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = asyncio.run_coroutine_threadsafe
    with (
        FakeKafka(log_start=0, end=9).running() as kafka,
        BlockingTieredStorageConsumer(**_options(kafka)) as consumer,
    ):
        consumer.assign([PARTITION])
        assert consumer.getone().offset == 0
        with monkeypatch.context() as patch:
            patch.setattr(
                asyncio, "run_coroutine_threadsafe", lambda *work: _Interrupted(submit(*work))
            )
            with pytest.raises(KeyboardInterrupt):
                consumer.getone() if name == "getone" else consumer.getmany(timeout_ms=60_000)
        assert consumer.position(PARTITION) == 1
        assert [consumer.getone().offset for _ in range(8)] == [*range(1, 9)]


def test_stop_ends_a_call_of_another_thread() -> None:
    raised: list[Exception] = []
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call(consumer: BlockingTieredStorageConsumer) -> None:
        try:
            consumer._run(for_ever())
        except ConsumerStoppedError as error:
            raised.append(error)

    with FakeKafka(log_start=0, end=9).running() as kafka:
        consumer = BlockingTieredStorageConsumer(**_options(kafka))
        consumer.start()
        other = threading.Thread(target=call, args=(consumer,), daemon=True)
        other.start()
        assert begun.wait(60)
        consumer.stop()
        other.join(60)
    assert len(raised) == 1
