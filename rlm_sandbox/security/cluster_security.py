"""The security of one sandbox: what nodes, clients and sandbox.json take from it.

`prepare_security` makes keys, certificates, passwords and tokens before the first start; a sandbox
that comes up again has the same. A sandbox with `--security plaintext` has none of it.
"""

from dataclasses import dataclass
from typing import Any

from rlm_sandbox.files import encode_properties, write_atomically
from rlm_sandbox.security import clients, listeners
from rlm_sandbox.security.clients import (
    ClientIdentity,
    client_properties,
    identity_of,
    proxy_settings,
    service_settings,
)
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import (
    ADMIN,
    CLIENTS,
    SERVICE,
    Secrets,
    make_secrets,
    saved_secrets,
)
from rlm_sandbox.spec import PLAINTEXT, Layout, SandboxError, SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecurity:
    """`kind` is the value of `--security`, never plaintext."""

    kind: str
    files: SecurityFiles
    secrets: Secrets

    def node_properties(self) -> dict[str, str]:
        """Additions to server.properties of every broker and controller."""
        return listeners.security_properties(self.kind, self.files, self.secrets)

    def jvm_options(self) -> tuple[str, ...]:
        return listeners.jvm_options(self.files)

    def format_options(self) -> tuple[str, ...]:
        """Options of `kafka-storage format`, with passwords."""
        return listeners.scram_options(self.secrets.passwords)

    def identity(self, name: str, *, proxy: bool = False) -> ClientIdentity:
        return identity_of(name, self.kind, self.files, self.secrets, proxy=proxy)

    def service_settings(self) -> dict[str, str]:
        """Settings of services and readers for their own clients, as User:rlm."""
        identity, files = self.identity(SERVICE), self.files
        return service_settings(identity, files.password(SERVICE), files.keystore(SERVICE))

    def proxy_settings(self) -> dict[str, str]:
        """Settings of TLS at the proxy, which a reader does not have."""
        return proxy_settings(self.kind, self.files)

    @property
    def admin(self) -> ClientIdentity:
        """The sandbox itself, on the direct listener."""
        return self.identity(ADMIN)

    def document(self) -> dict[str, Any]:
        return clients.security_document(self.kind, self.files, self.secrets)


def security_of(layout: Layout, spec: SandboxSpec) -> ClusterSecurity | None:
    """The security of a sandbox that was prepared; None in plaintext."""
    if spec.security == PLAINTEXT:
        return None
    files = SecurityFiles(folder=layout.security)
    return ClusterSecurity(kind=spec.security, files=files, secrets=saved_secrets(files.secrets))


def prepare_security(layout: Layout, spec: SandboxSpec, *, now_ms: int) -> None:
    """Make what is missing; raises SandboxError where the library of certificates is missing, and
    for a path by which Kafka does not find files.
    """
    if spec.security == PLAINTEXT:
        return
    try:
        from rlm_sandbox.security.certificates import make_certificates
        from rlm_sandbox.security.oauth import make_tokens
    except ImportError:
        raise SandboxError(
            f"--security {spec.security} needs the package cryptography: "
            "pip install 'kafka-rlm[sandbox]'"
        ) from None
    files = SecurityFiles(folder=layout.security)
    if files.jwks.as_uri() != f"file://{files.jwks}":
        raise SandboxError(
            f"--dir {layout.root}: with --security it needs a path without spaces and special "
            "characters, as Kafka finds its key set of OAUTHBEARER by a URL that it does not decode"
        )
    files.folder.mkdir(mode=0o700, exist_ok=True)
    make_secrets(files.secrets)
    make_certificates(files, now_ms=now_ms)
    make_tokens(files, now_ms=now_ms)
    secrets = saved_secrets(files.secrets)
    for name in CLIENTS:
        write_atomically(files.password(name), secrets.passwords[name], private=True)
        for proxy in (False, True):
            identity = identity_of(name, spec.security, files, secrets, proxy=proxy)
            properties = client_properties(identity, files.keystore(name))
            path = files.client_properties(name, proxy=proxy)
            write_atomically(path, encode_properties(properties), private=True)
