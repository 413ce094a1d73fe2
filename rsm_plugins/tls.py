"""TLS of a plugin's connection: the files of each side, read and made into credentials.

With them an address need not be private to this machine. Files are read when the server starts and
when a client connects. Must not open sockets.
"""

from dataclasses import dataclass
from pathlib import Path

import grpc

from kip405.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What a client trusts and shows; every file is PEM.

    `ca_file` None trusts what gRPC trusts by itself. `server_name` is the name to be found in the
    plugin's certificate where it is not the one dialled.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Invalid names a file that cannot be read, or the one that its partner lacks."""
        require_both("tls.cert.file", self.cert_file, "tls.key.file", self.key_file)
        return grpc.ssl_channel_credentials(
            root_certificates=_optional_pem(self.ca_file),
            private_key=_optional_pem(self.key_file),
            certificate_chain=_optional_pem(self.cert_file),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """What a plugin shows, and whom it lets in: with `client_ca_file` only clients with a
    certificate of that authority.
    """

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Invalid names a file that cannot be read."""
        key, chain = _pem(self.key_file), _pem(self.cert_file)
        return grpc.ssl_server_credentials(
            [(key, chain)],
            root_certificates=_optional_pem(self.client_ca_file),
            require_client_auth=self.client_ca_file is not None,
        )


def require_both(one: str, first: Path | None, other: str, second: Path | None) -> None:
    """Invalid where only one of two settings is given."""
    if (first is None) != (second is None):
        given, missing = (one, other) if second is None else (other, one)
        raise Invalid(f"{given} is given without {missing}")


def _optional_pem(path: Path | None) -> bytes | None:
    return None if path is None else _pem(path)


def _pem(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise Invalid(f"{path} is not PEM")
    return content
