"""TLS of a gRPC connection, the server's side, whose files may be renewed at any time.

This module must not open sockets.
"""

from dataclasses import dataclass
from pathlib import Path

import grpc

from rsm_plugins.contract.tls import optional_pem, pem, require_pair
from rsm_plugins.renewed import Renewed


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
        require_pair(self.cert_file, self.key_file)
        key, chain = pem(self.key_file), pem(self.cert_file)
        return grpc.ssl_server_certificate_configuration(
            [(key, chain)], root_certificates=optional_pem(self.client_ca_file)
        )
