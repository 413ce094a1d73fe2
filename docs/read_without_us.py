"""python3 read_without_us.py FOLDER: committed records of one partition's downloaded objects."""

import gzip
import json
import struct
import sys
from pathlib import Path


def section(indexes, wanted):
    rows = struct.iter_unpack(">BIII", indexes[6 : 6 + 13 * indexes[5]])
    return next(indexes[at : at + size] for kind, at, size, _ in rows if kind == wanted)


def varint(data, at):
    value = shift = 0
    while True:
        value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
        if data[at - 1] < 128:
            return (value >> 1) ^ -(value & 1), at


def sized(data, at):
    size, at = varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def records(batch):
    base, attributes, first_ms, max_ms, count = struct.unpack(">q13xh4xqq14xi", batch[:61])
    if batch[16] != 2 or attributes & 7 > 1:  # 2 is snappy, 3 lz4, 4 zstd: cramjam has all three
        sys.exit(f"offset {base}: magic {batch[16]}, codec {attributes & 7}: pip install cramjam")
    data, at = gzip.decompress(batch[61:]) if attributes & 7 else batch[61:], 0
    for _ in range(count):
        ms, at = varint(data, varint(data, at)[1] + 1)  # after the record's size and a spare byte
        delta, at = varint(data, at)
        (key, at), headers = sized(data, at), []
        value, at = sized(data, at)
        parts, at = varint(data, at)
        for _ in range(2 * parts):
            part, at = sized(data, at)
            headers.append(part)
        yield base + delta, max_ms if attributes & 8 else first_ms + ms, key, value, headers


def partition(folder):
    found = {p: json.loads(p.read_bytes()) for p in sorted(folder.glob("*.rsm-manifest"))}
    if not found:
        sys.exit(f"{folder} holds no manifest")
    next_offset = max(manifest["remote_log_start_offset"] for manifest in found.values())
    indexes = {path: path.with_suffix(".indexes").read_bytes() for path in found}
    histories = [[int(word) for word in section(i, 4).split()[2:]] for i in indexes.values()]
    newest = max(histories, key=lambda one: one[-2:])  # epoch, its first offset, epoch, ...
    for path, manifest in found.items():  # by start offset: their names begin with it
        log, at = path.with_suffix(".log").read_bytes(), 0
        if len(log) not in (one["size_bytes"] for one in manifest["objects"]):
            sys.exit(f"{path.stem}.log has {len(log)} bytes: fetch it again")
        aborted = [*struct.iter_unpack(">qqq", section(indexes[path], 16))]
        while at < len(log):
            base, size, epoch, flags, delta, who = struct.unpack_from(">qii5xhi16xq", log, at)
            batch, at = log[at : at + 12 + size], at + 12 + size
            found = [e for e, start in zip(newest[::2], newest[1::2], strict=True) if start <= base]
            if base + delta < next_offset or epoch != max(found, default=epoch):
                continue  # another copy had it, or it is of a history that was given up
            rolled_back = flags & 16 and any(p == who and a <= base <= z for p, a, z in aborted)
            if not rolled_back and not flags & 32:  # 32: the mark at the end of a transaction
                yield from (one for one in records(batch) if one[0] >= next_offset)
            next_offset = base + delta + 1


if __name__ == "__main__":
    for record in partition(Path(sys.argv[1])):
        sys.stdout.write("\t".join(map(str, record)) + "\n")
