"""The table of docs/security.md says of every request of Kafka what it can do to our topics."""

from collections.abc import Iterator
from pathlib import Path

from kafka_protocol.api_versions import REMOVED_APIS
from kafka_protocol.apis import ADD_PARTITIONS_TO_TXN, DELETE_RECORDS, PRODUCE, WRITE_TXN_MARKERS
from rlm.proxy.topic_changes import CHANGING_APIS
from tests.kafka_protocol.oracle import Oracle

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
HEADING = "### Requests that reach the topics of the service"
REFUSED = (PRODUCE, ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS, DELETE_RECORDS)


def rows() -> Iterator[tuple[str, str]]:
    """Each request, and what the page says becomes of it."""
    _, _, rest = PAGE.read_text().partition(HEADING)
    for line in rest.partition("\n## ")[0].splitlines():
        if line.startswith("| "):
            names, what, _ = line.strip("| ").split(" | ")
            yield from ((name, what) for name in names.split(", ") if names != "request")


def requests(oracle: Oracle) -> dict[str, int]:
    """The API keys of what brokers take from anybody."""
    return {
        name.removesuffix("Request"): spec["apiKey"]
        for name, spec in oracle.messages.items()
        if "broker" in spec.get("listeners", ()) and spec["validVersions"] != "none"
    }


def test_every_request_has_one_row(oracle: Oracle) -> None:
    found = [name for name, _ in rows()]
    assert len(found) == len(set(found))
    assert set(found) == set(requests(oracle))


def test_what_is_refused_is_what_the_proxy_refuses(oracle: Oracle) -> None:
    keys = requests(oracle)
    refused = {keys[name] for name, what in rows() if what.startswith("refused")}
    assert refused == {*CHANGING_APIS, *(api.key for api in REFUSED)}
    removed = {keys[name] for name, what in rows() if what.startswith("not offered")}
    assert removed == REMOVED_APIS
