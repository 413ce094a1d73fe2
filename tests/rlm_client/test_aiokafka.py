"""What the consumer takes from aiokafka by private names is still there, and still the same."""

import hashlib
import inspect

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords

_START = "2f1ba70443327538"
_READ_WHOLE = (
    ("_get_actions_per_node", "1dab2cf937d165d0"),
    ("_fetch_requests_routine", "2a8ec5932644c9b0"),
    ("_proc_fetch_request", "59bf948fff47eed5"),
    ("_update_fetch_positions", "d7774d8241dc6a7e"),
)


def _hash(function: object) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]  # type: ignore[arg-type]


def test_start_is_the_one_that_ours_repeats() -> None:
    """A new one: compare TieredStorageConsumer.start with it, then name its hash here."""
    assert _hash(AIOKafkaConsumer.start) == _START


def test_the_fetcher_is_the_one_that_ours_extends() -> None:
    """A new one: read rlm_client/tiered_fetcher.py beside it, then name its hashes here."""
    assert [(name, _hash(getattr(Fetcher, name))) for name, _ in _READ_WHOLE] == [*_READ_WHOLE]
    assert _hash(FetchResult) == "d7db13f06de8248c"


def test_records_are_made_as_ours_of_whole_batches() -> None:
    """New ones: read rlm_client/pieces.py beside them, then name their hash here."""
    assert _hash(PartitionRecords) == "94aa0da0dbec8d1b"
