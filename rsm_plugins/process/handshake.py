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
    """The line that informs the parent process where the plugin listens."""
    endpoint = f"unix|{address.unix_path}" if address.is_unix else f"tcp|{address}"
    return f"{HANDSHAKE_VERSION}|{HANDSHAKE_VERSION}|{endpoint}|grpc"


def parse_handshake(line: str) -> Address:
    """The address at which the plugin listens; Invalid if it is not a handshake of this version."""
    fields = line.split("|")
    if len(fields) < 5 or not (fields[0].isdecimal() and fields[1].isdecimal()):
        raise Invalid(f"the first line {line!r:.200} is no handshake ({_SHAPE})")
    versions, network, address, protocol = fields[:2], fields[2], fields[3], fields[4]
    if versions != [str(HANDSHAKE_VERSION)] * 2:
        raise Invalid(
            f"it speaks version {'|'.join(versions)} of the handshake, this side "
            f"{HANDSHAKE_VERSION}|{HANDSHAKE_VERSION}"
        )
    if network not in ("unix", "tcp") or protocol != "grpc":
        raise Invalid(f"it speaks {protocol!r:.40} over {network!r:.40}, not grpc over unix or tcp")
    return Address.parse(f"unix:{address}" if network == "unix" else address)
