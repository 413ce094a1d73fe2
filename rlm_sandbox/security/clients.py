"""What a client needs to be one of the principals. Pure.

Kafka's own names, as client.properties has them; libraries in other languages get the single values
from sandbox.json.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.listeners import MECHANISMS, SCRAM, has_sasl, has_tls, protocols
from rlm_sandbox.security.principals import CLIENTS, SERVICE, Secrets

_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """One principal on one listener. Name and password are None without SASL, `ca` without TLS,
    `certificate` and `key` where nobody asks for them.
    """

    protocol: str
    username: str | None
    password: str | None
    ca: Path | None
    certificate: Path | None
    key: Path | None

    def __repr__(self) -> str:
        return f"ClientIdentity({self.protocol}, {self.username})"


def identity_of(
    name: str, security: str, files: SecurityFiles, secrets: Secrets, *, proxy: bool = False
) -> ClientIdentity:
    """The principal `name` on the direct listener, or on the one behind the proxy."""
    known = protocols(security)
    protocol = known.tiered if proxy else known.direct
    by_certificate = security == "mtls"
    return ClientIdentity(
        protocol=protocol,
        username=name if has_sasl(protocol) else None,
        password=secrets.passwords[name] if has_sasl(protocol) else None,
        ca=files.ca if has_tls(protocol) else None,
        certificate=files.certificate(name) if by_certificate else None,
        key=files.key(name) if by_certificate else None,
    )


def client_properties(identity: ClientIdentity, keystore: Path) -> dict[str, str]:
    """The properties file of a client of Kafka's own; `keystore`: certificate and key in one."""
    properties = {"security.protocol": identity.protocol}
    if identity.username is not None:
        login = f'username="{identity.username}" password="{identity.password}"'
        properties |= {
            "sasl.mechanism": SCRAM,
            "sasl.jaas.config": f"{_SCRAM_MODULE} required {login};",
        }
    if identity.ca is not None:
        properties |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(identity.ca),
        }
    if identity.certificate is not None:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
    return properties


def service_settings(identity: ClientIdentity, password: Path, keystore: Path) -> dict[str, str]:
    """What the YAML of a service has for its own clients; `password`: the file with it alone."""
    settings = {"kafka.security.protocol": identity.protocol}
    if identity.username is not None:
        settings |= {
            "kafka.sasl.mechanism": SCRAM,
            "kafka.sasl.username": identity.username,
            "kafka.sasl.password.file": str(password),
        }
    if identity.ca is not None:
        settings["kafka.ssl.truststore.location"] = str(identity.ca)
    if identity.certificate is not None:
        settings["kafka.ssl.keystore.location"] = str(keystore)
    return settings


def proxy_settings(security: str, files: SecurityFiles) -> dict[str, str]:
    """What the YAML of a service has for TLS at the proxy, towards clients and the broker."""
    if not has_tls(protocols(security).tiered):
        return {}
    certificate, key = str(files.certificate(SERVICE)), str(files.key(SERVICE))
    settings = {
        "proxy.tls.cert.file": certificate,
        "proxy.tls.key.file": key,
        "broker.tiered.tls.ca.file": str(files.ca),
    }
    if security == "mtls":
        settings |= {
            "proxy.tls.client.auth": "required",
            "proxy.tls.client.ca.file": str(files.ca),
            "broker.tiered.tls.cert.file": certificate,
            "broker.tiered.tls.key.file": key,
        }
    return settings


def security_document(security: str, files: SecurityFiles, secrets: Secrets) -> dict[str, Any]:
    """The part of sandbox.json with which a client of any library becomes one of the principals."""
    known = protocols(security)
    uses_tls = has_tls(known.direct)
    return {
        "protocol": known.direct,
        "mechanism": SCRAM if has_sasl(known.direct) else None,
        "proxy": {"protocol": known.tiered, "mechanism": SCRAM},
        "mechanisms": list(MECHANISMS),
        "ca": str(files.ca) if uses_tls else None,
        **{name: _client(name, security, files, secrets) for name in CLIENTS},
    }


def _client(name: str, security: str, files: SecurityFiles, secrets: Secrets) -> dict[str, str]:
    entry = {
        "username": name,
        "password": secrets.passwords[name],
        "client_properties": str(files.client_properties(name)),
        "proxy_client_properties": str(files.client_properties(name, proxy=True)),
        "token_file": str(files.token(name)),
    }
    if security == "mtls":
        entry |= {
            "certificate": str(files.certificate(name)),
            "key": str(files.key(name)),
            "keystore": str(files.keystore(name)),
        }
    return entry
