"""Errors cross from executors to the driver: they pickle, and one line names the offset."""

import pickle

from tiered_reads.errors import ConnectorError, DecodeError


def test_decode_errors_pickle() -> None:
    error = DecodeError("orders", 3, 42, "crc is wrong")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, DecodeError)
    assert isinstance(copy, ConnectorError)
    assert (copy.topic, copy.partition, copy.offset, copy.reason) == (
        "orders",
        3,
        42,
        "crc is wrong",
    )
    assert str(copy) == str(error) == "orders-3 at offset 42: crc is wrong"
