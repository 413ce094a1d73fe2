"""Memory for decompressed records: reused, limited, and given back after a huge batch."""

import pytest
from aiokafka.codec import lz4_encode, zstd_encode

from kip405.batches import Compression
from kip405.errors import Corrupt
from kip405.records import Scratch, decompress

ENCODERS = {Compression.LZ4: lz4_encode, Compression.ZSTD: zstd_encode}


@pytest.mark.parametrize("codec", ENCODERS)
def test_one_memory_for_batch_after_batch(codec: Compression) -> None:
    scratch = Scratch()
    for size in (10, 1_000_000, 0, 300_000, 20 << 20, 5):
        plain = bytes(range(251)) * (size // 251 + 1)
        packed = memoryview(b"before" + ENCODERS[codec](plain))[6:]
        assert bytes(scratch.decompress(codec, packed)) == plain


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("size", [1_000, 70_000, 500_000])
def test_the_limit_is_exact(codec: Compression, size: int) -> None:
    scratch = Scratch()
    packed = ENCODERS[codec](bytes(size))
    assert len(scratch.decompress(codec, packed, size)) == size
    with pytest.raises(Corrupt, match=f"limit {size - 1} bytes"):
        scratch.decompress(codec, packed, size - 1)


def test_what_is_not_compressed_is_not_copied() -> None:
    plain = b"records"
    assert decompress(Compression.NONE, plain) is plain
