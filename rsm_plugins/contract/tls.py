"""TLS of a gRPC connection: reads the files of each side and makes credentials of them.

With TLS, an address need not be private to this machine. A server checks its files before every
handshake, a client when it dials (client_channel.py). This module must not open sockets.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from kip405.errors import Invalid
from rsm_plugins.renewed import Renewed


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
            _require_pair(self.cert_file, self.key_file)
        return grpc.ssl_channel_credentials(
            root_certificates=_optional_pem(self.ca_file),
            private_key=_optional_pem(self.key_file),
            certificate_chain=_optional_pem(self.cert_file),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """What a server shows and which clients it admits: with `client_ca_file`, only clients with a
    certificate of that authority.
    """

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to check for a renewal."""
        pair = (self.cert_file, self.key_file)
        return pair if self.client_ca_file is None else (*pair, self.client_ca_file)

    def credentials(self) -> grpc.ServerCredentials:
        """Of the files as they are at each handshake. Invalid names a file that cannot be read."""
        renewed = Renewed(self.files, self._configuration)
        shown = [renewed.current()]

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            """Called by gRPC before a handshake; None = as before."""
            current = renewed.current()
            if current is shown[0]:
                return None
            shown[0] = current
            return current

        return grpc.dynamic_ssl_server_credentials(
            shown[0],
            fetch,  # type: ignore[arg-type]  # the stub leaves out that None is allowed
            require_client_authentication=self.client_ca_file is not None,
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        _require_pair(self.cert_file, self.key_file)
        key, chain = _pem(self.key_file), _pem(self.cert_file)
        return grpc.ssl_server_certificate_configuration(
            [(key, chain)], root_certificates=_optional_pem(self.client_ca_file)
        )


def require_both(one: str, first: Path | None, other: str, second: Path | None) -> None:
    """Invalid where only one of two settings is given."""
    if (first is None) != (second is None):
        given, missing = (one, other) if second is None else (other, one)
        raise Invalid(f"{given} is given without {missing}")


def _require_pair(cert_file: Path, key_file: Path) -> None:
    """Invalid where a certificate and a key do not belong together, as between the writing of one
    and of the other: gRPC takes them and then fails to connect.
    """
    for path in (cert_file, key_file):
        _pem(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")  # gRPC decides how strong they have to be
    try:
        context.load_cert_chain(cert_file, key_file, password="")  # never asked for on a terminal
    except (OSError, ValueError) as error:
        text = f"{cert_file} and {key_file} are not a certificate and its key"
        raise Invalid(text) from error


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
