"""Each test with `decoder` runs once with each decoder."""

import pytest

from tests.rlm_spark.decode.engines import Decoder, names


@pytest.fixture(params=list(names()))
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    return Decoder(request.param, monkeypatch)
