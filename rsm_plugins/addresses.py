"""Addresses a plugin listens on or is dialled at: `host:port`, `[v6]:port` or `unix:/short/path`.

Without TLS and client certificates only loopback and unix sockets are taken, on both sides, unless
`allow_insecure` says otherwise. Must not open sockets.
"""

import ipaddress
import re
from dataclasses import dataclass

from kip405.errors import Invalid

UNIX_PATH_MAX_BYTES = 99  # sun_path has 104 bytes on macOS, 108 on Linux, its end included
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A checked address; exactly one of `unix_path` and `host` is set."""

    unix_path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Invalid says what is allowed."""
        if text.startswith("unix:"):
            return cls(unix_path=_checked_path(text.removeprefix("unix:")))
        match = _HOST_PORT.fullmatch(text)
        if match is None or int(match[2]) > 65535:
            raise Invalid(f"{text!r} is neither host:port nor unix:/path")
        return cls(host=match[1], port=int(match[2]))

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it."""
        if self.unix_path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def network(self) -> str:
        """As in the handshake line."""
        return "unix" if self.unix_path else "tcp"

    def with_port(self, port: int) -> "Address":
        return self if self.unix_path else Address(host=self.host, port=port)

    def require_private(self, allowed: bool) -> None:
        """Invalid for an address others can reach, unless that is secured or allowed."""
        if not self.is_private and not allowed:
            raise Invalid(
                f"{self} is not loopback, and nothing says who may call there: use "
                "127.0.0.1:PORT or unix:/path, or TLS with client certificates (tls.*), "
                "or set allow_insecure: true"
            )

    def __str__(self) -> str:
        return f"unix:{self.unix_path}" if self.unix_path else f"{self.host}:{self.port}"


def _checked_path(path: str) -> str:
    if not path.startswith("/"):
        raise Invalid(f"unix:{path} is not an absolute path")
    length = len(path.encode("utf-8"))
    if length > UNIX_PATH_MAX_BYTES:
        raise Invalid(
            f"the path of unix:{path} has {length} bytes, "
            f"that of a socket has at most {UNIX_PATH_MAX_BYTES}: take a shorter one"
        )
    return path
