"""The files of a secured sandbox, in `security/` of its directory. Pure.

secrets.json              every password
ca.pem, ca.key            the certificate authority
NAME.pem, NAME.key        certificate and key of a principal
NAME.keystore.pem         both in one file, as Kafka reads them
NAME.properties           client settings for Kafka's own tools; NAME.proxy.properties for those
                          that go through the proxy
NAME.password             the password alone, as settings of services name it
NAME.jwt                  a token of OAUTHBEARER
jwks.json, oauth.key      the keys that tokens are verified and signed with
format.args               SCRAM users for kafka-storage, there only while it runs
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityFiles:
    """Paths; only the owner can read what is secret among them."""

    folder: Path

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets.json"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def keystore(self, name: str) -> Path:
        return self.folder / f"{name}.keystore.pem"

    def client_properties(self, name: str, *, proxy: bool = False) -> Path:
        return self.folder / f"{name}{'.proxy' if proxy else ''}.properties"

    def password(self, name: str) -> Path:
        return self.folder / f"{name}.password"

    def token(self, name: str) -> Path:
        return self.folder / f"{name}.jwt"

    @property
    def jwks(self) -> Path:
        return self.folder / "jwks.json"

    @property
    def oauth_key(self) -> Path:
        return self.folder / "oauth.key"

    @property
    def format_arguments(self) -> Path:
        return self.folder / "format.args"
