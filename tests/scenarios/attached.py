"""What an attached reader must answer: the same batches as a service of the cluster does."""

from kip405.batches import batch_headers
from kip405.records import records
from rlm.v1 import fetch_pb2 as pb
from tests.scenarios.test_reader_role import Endpoint

Content = tuple[bytes, list[tuple[int, int]], list[tuple[int, bytes | None, bytes | None]]]


def content(reader: Endpoint, start_offset: int, end_offset: int, level: int) -> Content:
    """All bytes of the batches, what was aborted, and the records with their offsets."""
    answers = reader.read(start_offset, end_offset=end_offset, isolation_level=level)
    assert all(not one.missing for one in answers)
    data = b"".join(one.batches for one in answers)
    aborted = {
        (row.producer_id, row.first_offset) for one in answers for row in one.aborted_transactions
    }
    found = [
        (record.offset, record.key, record.value)
        for start, _ in batch_headers(data)
        for record in records(data, start)
    ]
    return data, sorted(aborted), found


def assert_served_alike(attached: Endpoint, service: Endpoint, end_offset: int) -> None:
    """From the start and from within, by both isolation levels, and by position."""
    for level in (pb.READ_UNCOMMITTED, pb.READ_COMMITTED):
        for start in (0, end_offset // 2):
            wanted = content(service, start, end_offset, level)
            assert wanted[2], "the service gave no records"
            assert content(attached, start, end_offset, level) == wanted
    for timestamp in (-1, -2, -3, 0):
        assert attached.position(timestamp) == service.position(timestamp)
