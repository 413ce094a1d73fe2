"""One broker's service and a reader: either may die under a stream. TLS and token, once each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.certificates import Authority
from tests.spark.conftest import Twins
from tests.spark.lab import Lab, Seen, assert_equal, failure, seen, start_available
from tests.spark.readers import Reader, reader

pytestmark = pytest.mark.integration

REMOTE_ONLY = {"readMode": "remote_only", "includeHeaders": "true"}


@pytest.fixture
def beside(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with reader(lab.cluster, tmp_path_factory.mktemp("reader")) as running:
        yield running


def _remote(twins: Twins) -> list[Seen]:
    return [row for row in twins.expected() if row.offset < twins.remote_ends[row.partition]]


@pytest.mark.parametrize("dies", ["the reader", "the service"])
def test_a_stream_goes_on_with_the_other_endpoint(
    lab: Lab, twins: Twins, beside: Reader, folder: Path, dies: str
) -> None:
    options = {
        **REMOTE_ONLY,
        "rlm.endpoints": f"{lab.endpoint},{beside.endpoint}",
        "maxOffsetsPerTrigger": "150",
    }
    query = start_available(lab.stream(twins.tiered, options), folder)
    try:
        lab.cluster.wait_for(lambda: len(query.recentProgress) >= 2, "two batches", 200)
        if dies == "the reader":
            beside.kill()
        else:
            lab.cluster.sandbox.kill("rlm:1")
        assert query.isActive, "it had ended before the kill"
        assert query.awaitTermination(200), "the stream did not end"
    finally:
        query.stop()
    assert_equal(seen(lab.written(folder)), _remote(twins))


def test_tls_and_token(lab: Lab, twins: Twins, folder: Path) -> None:
    authority = Authority(folder)
    shown = authority.issue("service", "127.0.0.1")
    token = folder / "token"
    token.write_text("let-me-in\n", encoding="ascii")
    settings = {
        "grpc_tls_cert_file": shown.cert_file,
        "grpc_tls_key_file": shown.key_file,
        "grpc_tls_ca_file": authority.ca_file,
        "api_token_file": token,
    }
    with reader(lab.cluster, folder, **settings) as running:
        options = {**REMOTE_ONLY, "rlm.endpoints": running.endpoint, "subscribe": twins.tiered}
        trusting = {**options, "rlm.tls.ca.file": str(authority.ca_file)}
        frame = lab.bare({**trusting, "rlm.token.file": str(token)})
        assert_equal(seen(frame), _remote(twins))
        soon = {**trusting, "kafkaConsumer.pollTimeoutMs": "60000"}
        assert "token" in failure(lambda: lab.bare({**soon, "rlm.token": "wrong"}))
        without_tls = {**options, "kafkaConsumer.pollTimeoutMs": "3000", "rlm.token": "let-me-in"}
        assert "unavailable" in failure(lambda: lab.bare(without_tls))
