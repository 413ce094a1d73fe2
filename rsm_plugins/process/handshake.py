"""The line that a plugin prints once it accepts calls: `1|1|unix|/short/path|grpc`. Pure.

Its fields are the version of the line, the version of the contract, network, address and protocol,
as in HashiCorp's go-plugin.
"""

from kip405.addresses import Address
from kip405.errors import Invalid

HANDSHAKE_VERSION = 1
LINE_MAX_BYTES = 1024
_SHAPE = f"{HANDSHAKE_VERSION}|{HANDSHAKE_VERSION}|unix or tcp|ADDRESS|grpc"


def handshake(address: Address) -> str:
    """The line that tells the parent process where the plugin listens."""
    place = f"unix|{address.unix_path}" if address.is_unix else f"tcp|{address}"
    return f"{HANDSHAKE_VERSION}|{HANDSHAKE_VERSION}|{place}|grpc"


def parse_handshake(line: str) -> Address:
    """Where the plugin listens; Invalid where it is no handshake, or one of another version."""
    parts = line.split("|")
    if len(parts) < 5 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        raise Invalid(f"the first line {line!r:.200} is no handshake ({_SHAPE})")
    versions, network, place, protocol = parts[:2], parts[2], parts[3], parts[4]
    if versions != [str(HANDSHAKE_VERSION)] * 2:
        raise Invalid(
            f"it speaks version {'|'.join(versions)} of the handshake, this side "
            f"{HANDSHAKE_VERSION}|{HANDSHAKE_VERSION}"
        )
    if network not in ("unix", "tcp") or protocol != "grpc":
        raise Invalid(f"it speaks {protocol!r:.40} over {network!r:.40}, not grpc over unix or tcp")
    return Address.parse(f"unix:{place}" if network == "unix" else place)
