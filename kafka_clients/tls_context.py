"""Makes TLS contexts of PEM files and texts, anew for each connection.

So a renewed certificate is used by the next connection, and no process has to watch files.
"""

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kafka_clients.security import (
    KEY_PASSWORD_KEY,
    KEYSTORE_KEY,
    TRUSTSTORE_KEY,
    SecretSource,
    TlsFiles,
)
from kip405.errors import Invalid
from kip405.settings import Secret

TRUSTS_EACH = ssl.VERIFY_X509_PARTIAL_CHAIN
"""As Java does, and Python since 3.13: a certificate in a file of authorities is trusted, also if
that of its own issuer is not in the file.
"""
_MOST_SECRET_BYTES = 64 << 10
_MOST_KEY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsNames:
    """The settings that a refusal names."""

    truststore: str = TRUSTSTORE_KEY
    keystore: str = KEYSTORE_KEY
    key_password: str = KEY_PASSWORD_KEY
    key_password_file: str = f"{KEY_PASSWORD_KEY}.file"


KAFKA_NAMES = TlsNames()


def read_secret(source: SecretSource, setting: str) -> str:
    """The secret as it is now; of a file without the line end. Invalid names setting and file."""
    if isinstance(source, Secret):
        return source.reveal()
    try:
        with source.open("rb") as file:
            text = file.read(_MOST_SECRET_BYTES).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise Invalid(f"{setting}: cannot read {source}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Invalid(f"{setting}: {source} is not UTF-8") from None
    if not text:
        raise Invalid(f"{setting}: {source} is empty")
    return text


def make_tls_context(files: TlsFiles, names: TlsNames = KAFKA_NAMES) -> ssl.SSLContext:
    """Invalid names the setting and the file that cannot be used."""
    context = _trusting(files, names)
    context.check_hostname = files.checks_host_name
    # Python 3.13 refuses authorities without a key identifier; Java's and librdkafka's clients,
    # which the same files serve, take them, as Python 3.12 does.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.verify_flags |= TRUSTS_EACH
    if files.cert_text is not None or files.key_text is not None:
        _load_texts(context, files, names)
    elif files.cert_file is not None:
        _load_chain(context, (files.cert_file, files.key_file), files, names)
    return context


def _trusting(files: TlsFiles, names: TlsNames) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=files.ca_file, cadata=files.ca_text)
    except (OSError, ValueError) as error:
        where = files.ca_file or "the text that is given"
        raise Invalid(f"{names.truststore}: {where} cannot be used: {_why(error)}") from None


def _load_chain(
    context: ssl.SSLContext, chain: tuple[str, str | None], files: TlsFiles, names: TlsNames
) -> None:
    # Without a password OpenSSL would ask for one on the terminal.
    source, (cert_file, key_file) = files.key_password, chain
    password = read_secret(source, names.key_password_file) if source is not None else ""
    try:
        context.load_cert_chain(cert_file, key_file, password)
    except (OSError, ValueError) as error:
        where = " and ".join(filter(None, (files.cert_file or "the text that is given", key_file)))
        locked = f"the password of the key is wrong or missing ({names.key_password})"
        why = locked if _is_encrypted(key_file or cert_file) else _why(error)
        raise Invalid(
            f"{names.keystore}: {where} cannot be used as certificate and key: {why}"
        ) from None


def _is_encrypted(key_file: str) -> bool:
    """OpenSSL does not say that a password is wrong."""
    try:
        with Path(key_file).open("rb") as file:
            return b"ENCRYPTED" in file.read(_MOST_KEY_BYTES)
    except OSError:
        return False


def _load_texts(context: ssl.SSLContext, files: TlsFiles, names: TlsNames) -> None:
    """Loads a certificate chain. OpenSSL reads chains from files only, so it is written to a
    private file for a moment.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        key = files.key_text.reveal() if files.key_text is not None else ""
        file.write(f"{key}\n{files.cert_text or ''}\n")
        file.flush()
        _load_chain(context, (file.name, None), files, names)


def _why(error: Exception) -> str:
    """OpenSSL's words, or the system's."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").lower().replace("_", " ")
    return error.strerror or "it cannot be read" if isinstance(error, OSError) else str(error)
