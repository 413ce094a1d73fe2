"""python3 blocks_without_us.py FOLDER: make a .log and .indexes of all .blocks in the folder."""

import json
import struct
import sys
from pathlib import Path


def batches(data):
    at = 0
    while at < len(data):
        magic, header, size, _ = struct.unpack_from(">4sqqq", data, at)
        if magic != b"\xfb\xdb\xab\xcb" or at + size > len(data):
            sys.exit(f"no whole block at position {at}: fetch it again")
        entry, at = at + header, at + size
        while entry + 12 <= at and (length := struct.unpack_from(">i", data, entry)[0]) > 0:
            yield data[entry + 12 : entry + 12 + length]  # a negative length begins the filling
            entry += 12 + length


def varint(data, at):
    low, at = data[at] & 127, at + 1
    high, at = varint(data, at) if data[at - 1] > 127 else (0, at)
    return low | high << 7, at


def field(message, wanted):  # of protobuf; there are no numbers of 8 bytes
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        size, at = (4, at) if tag & 7 == 5 else varint(message, at)
        if tag == wanted << 3 | 2:
            return message[at : at + size]
        at += size if tag & 7 else 0


for path in Path(sys.argv[1]).glob("*.rsm-manifest"):
    if not path.with_suffix(".blocks").exists():
        continue  # a segment of another layout
    data, index = (path.with_suffix(f".{end}").read_bytes() for end in ("blocks", "blocks-index"))
    data_size, metadata_size = struct.unpack_from(">8xq12xi", index)
    if len(data) != data_size:
        sys.exit(f"{path.stem}.blocks has {len(data)} bytes, not {data_size}: fetch it again")
    size = path.with_suffix(".log").write_bytes(b"".join(batches(data)))
    path.with_suffix(".indexes").write_bytes(field(index[32 : 32 + metadata_size], 1013) or b"")
    manifest = json.loads(path.read_bytes())
    manifest["objects"].append({"size_bytes": size})  # the other program compares it
    path.write_text(json.dumps(manifest))
