"""Addresses of listeners and servers: `host:port`, `[v6]:port` or `unix:/path`.

This is the only parser, for settings, commands, plugins and brokers. It must not open sockets or
resolve names.
"""

import ipaddress
import re
from dataclasses import dataclass

from kip405.errors import Invalid

MAX_UNIX_PATH_BYTES = 103
"""`sun_path` has 104 bytes on macOS and 108 on Linux, the closing zero included."""
MAX_PORT = 65_535
_HOST_PORT = re.compile(r"(?:\[([^\[\]]*)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`unix_path` for a unix socket; otherwise a host, IPv6 without its brackets, and a port."""

    host: str = ""
    port: int = 0
    unix_path: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """An address to connect to. Invalid: the message says what is wrong."""
        address = cls.parse_listening(text)
        if not address.is_unix and address.port == 0:
            raise Invalid(f"{text!r}: the port is not within 1 to {MAX_PORT}")
        return address

    @classmethod
    def parse_listening(cls, text: str) -> "Address":
        """An address to listen on: port 0 takes a free one. Invalid likewise."""
        if text.startswith("unix:"):
            return cls(unix_path=_checked_path(text))
        match = _HOST_PORT.fullmatch(text)
        if match is None or not (match[2] or _is_v6(match[1])):
            raise Invalid(f"{text!r}: neither host:port, [IPv6]:port nor unix:/path")
        if int(match[3]) > MAX_PORT:
            raise Invalid(f"{text!r}: the port is above {MAX_PORT}")
        return cls(host=match[2] or match[1], port=int(match[3]))

    @property
    def is_unix(self) -> bool:
        return bool(self.unix_path)

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it; a name other than localhost does not count."""
        if self.is_unix or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it is good to listen on and useless to connect to."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def with_port(self, port: int) -> "Address":
        """The same with the port that was taken."""
        return self if self.is_unix else Address(host=self.host, port=port)

    def require_private(self, allowed: bool) -> None:
        """Invalid for an address others can reach, unless that is secured or allowed."""
        if not self.is_private and not allowed:
            raise Invalid(
                f"{self} is not loopback, and nothing says who may call there: use "
                "127.0.0.1:PORT or unix:/path, or TLS with client certificates (tls.*), "
                "or set allow_insecure: true"
            )

    def __str__(self) -> str:
        if self.is_unix:
            return f"unix:{self.unix_path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_v6(host: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(host))
    except ValueError:
        return False


def _checked_path(text: str) -> str:
    # Unix:///path is the URI form of the same address.
    path = text.removeprefix("unix:").removeprefix("//")
    if not path.startswith("/"):
        raise Invalid(f"{text!r}: the path of a unix socket must be absolute")
    length = len(path.encode("utf-8"))
    if length > MAX_UNIX_PATH_BYTES:
        raise Invalid(
            f"{text!r}: the path of a unix socket has {length} bytes, "
            f"{MAX_UNIX_PATH_BYTES} are possible: use a shorter one"
        )
    return path
