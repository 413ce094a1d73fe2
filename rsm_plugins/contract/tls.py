"""TLS of a gRPC connection, the client's side: reads the files and makes credentials of them.

With TLS, an address need not be private to this machine. A client checks its files when it dials
(client_channel.py), a server before every handshake (server_tls.py). This module must not open
sockets.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from kip405.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What a client trusts and shows; every file is PEM.

    With `ca_file` None it trusts what gRPC trusts by default. `server_name` is the name expected in
    the server's certificate if it differs from the dialled one.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to check for a renewal."""
        return tuple(path for path in (self.ca_file, self.cert_file, self.key_file) if path)

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Options of a channel that go with the credentials."""
        name = self.server_name
        return (("grpc.ssl_target_name_override", name),) if name else ()

    def credentials(self) -> grpc.ChannelCredentials:
        """Invalid names a file that cannot be read, or the one that its partner lacks."""
        require_both("tls.cert.file", self.cert_file, "tls.key.file", self.key_file)
        if self.cert_file is not None and self.key_file is not None:
            require_pair(self.cert_file, self.key_file)
        return grpc.ssl_channel_credentials(
            root_certificates=optional_pem(self.ca_file),
            private_key=optional_pem(self.key_file),
            certificate_chain=optional_pem(self.cert_file),
        )


def require_both(one: str, first: Path | None, other: str, second: Path | None) -> None:
    """Invalid where only one of two settings is given."""
    if (first is None) != (second is None):
        given, missing = (one, other) if second is None else (other, one)
        raise Invalid(f"{given} is given without {missing}")


def require_pair(cert_file: Path, key_file: Path) -> None:
    """Invalid where a certificate and a key do not belong together, as between the writing of one
    and of the other: gRPC takes them and then fails to connect.
    """
    for path in (cert_file, key_file):
        pem(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")  # gRPC decides how strong they have to be
    try:
        context.load_cert_chain(cert_file, key_file, password="")  # never asked for on a terminal
    except (OSError, ValueError) as error:
        text = f"{cert_file} and {key_file} are not a certificate and its key"
        raise Invalid(text) from error


def optional_pem(path: Path | None) -> bytes | None:
    """The content of a file, if there is one."""
    return None if path is None else pem(path)


def pem(path: Path) -> bytes:
    """The content of a file; Invalid where it cannot be read or is not PEM."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise Invalid(f"{path} is not PEM")
    return content
