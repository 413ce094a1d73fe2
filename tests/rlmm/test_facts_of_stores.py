"""What facts say of stores beyond the first format: written where known, read where present."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kip405.errors import Corrupt
from kip405.ids import Uuid
from rlmm.fact_codec import decode_fact, encode_fact
from rlmm.facts import Fact, ServiceFact, Stamp, StoreFact

STORE, OTHER = Uuid(b"\x01" * 16), Uuid(b"\x02" * 16)
STAMP = Stamp(node_id=1, leader_epoch=-1, writer=OTHER, time_ms=5)
PLAIN = StoreFact(store_id=STORE, plugin="s3", uri="s3://a", prefix="")
SERVICE = ServiceFact(node_id=1, listen={}, advertised={}, version="1")


def document(fact: Fact) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(encode_fact(fact, STAMP)[1])
    return found


@pytest.mark.parametrize(
    "fact",
    [
        PLAIN,
        StoreFact(store_id=STORE, plugin="s3", uri="s3://a", prefix="", names=("cold", "hot")),
        SERVICE,
        ServiceFact(node_id=1, listen={}, advertised={}, version="1", stores=()),
        ServiceFact(node_id=1, listen={}, advertised={}, version="1", stores=(STORE, OTHER)),
    ],
)
def test_round_trip(fact: Fact) -> None:
    assert decode_fact(*encode_fact(fact, STAMP)) == (fact, STAMP)


def test_what_is_not_known_is_not_written() -> None:
    assert "names" not in document(PLAIN)
    assert "stores" not in document(SERVICE)


@pytest.mark.parametrize("fact", [PLAIN, SERVICE])
def test_what_is_no_list_is_corrupt(fact: Fact) -> None:
    key, value = encode_fact(fact, STAMP)
    broken = json.dumps({**json.loads(value), "names": "hot", "stores": "x"}).encode()
    with pytest.raises(Corrupt):
        decode_fact(key, broken)
