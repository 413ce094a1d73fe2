"""Rules between the settings of `rlm serve`: what does not go together, or needs another one.

Each is an Invalid of one line. Pure, but for the class of a provider, which is imported.
"""

from collections.abc import Callable

from kip405.errors import Invalid
from rlm.config.attached import AttachedConfig
from rlm.config.common import BY_FILE, BY_KAFKA, NOBODY_ASKS, CommonConfig
from rlm.config.proxy_clients import check_proxy_clients
from rlm.config.proxy_tls import check_proxy_tls
from rlm.config.service import ReaderConfig, ServiceConfig, settings
from rsm_plugins.contract.tls import require_both


def _check_provider(config: ServiceConfig) -> None:
    try:
        config.provider()
    except Invalid as error:
        raise Invalid(f"storage.endpoint.provider.class: {error}") from error


def _check_grace(config: ServiceConfig) -> None:
    """H12: what may still be at work must not be swept."""
    if config.copy_deadline_ms >= config.sweep_grace_ms:
        raise Invalid(
            f"copy.deadline.ms: must be below sweep.grace.ms, which is {config.sweep_grace_ms}, "
            f"got {config.copy_deadline_ms}"
        )


def _check_tls(config: CommonConfig) -> None:
    """A certificate goes with its key, and all else about TLS with both."""
    cert, key = config.grpc_tls_cert_file, config.grpc_tls_key_file
    require_both("grpc.tls.cert.file", cert, "grpc.tls.key.file", key)
    http = config.http_tls_cert_file, config.http_tls_key_file
    require_both("http.tls.cert.file", http[0], "http.tls.key.file", http[1])
    for name in ("grpc_tls_client_ca_file", "grpc_tls_ca_file", "grpc_tls_server_name"):
        if cert is None and getattr(config, name):
            raise Invalid(f"{settings()[name].key}: goes with grpc.tls.cert.file")


def _check_peers(config: ServiceConfig) -> None:
    """Whoever writes the settings topic names the addresses of peers, and they get the token."""
    if config.api_token_file and config.grpc_tls and config.grpc_tls_ca_file is None:
        raise Invalid(
            "grpc.tls.ca.file: missing; the service sends the token of api.token.file to its "
            "peers, whose addresses the settings topic names, and without this file a certificate "
            "of any public authority would be enough to get it. Name the authorities of your "
            "services' certificates"
        )


def _check_authorization(config: CommonConfig) -> None:
    """Where callers have rights, each must be known, and services know each other by a token."""
    config.principal_mapping()
    asked = config.authorization
    if asked == NOBODY_ASKS:
        if config.api_principals_file is not None:
            raise Invalid(
                "api.principals.file: goes with api.authorization `file` or `kafka`, which is none"
            )
        return
    if asked == BY_FILE and config.api_principals_file is None:
        raise Invalid("api.principals.file: missing; api.authorization is file")
    if config.api_token_file is None:
        raise Invalid(
            f"api.token.file: missing; api.authorization is {asked}, and services know each other "
            "by the token in that file. Give it to no other caller"
        )
    has_certificates = config.grpc_tls_client_ca_file is not None
    if asked == BY_KAFKA and config.api_principals_file is None and not has_certificates:
        raise Invalid(
            "api.authorization: kafka, but no caller has a principal; give api.principals.file for "
            "tokens, or grpc.tls.client.ca.file for client certificates"
        )


def _check_exposure(config: CommonConfig) -> None:
    """A listener without TLS must be loopback, unless allow_insecure is set."""
    if config.allow_insecure:
        return
    _check_api(config)
    _check_http(config)
    for store in config.stores:
        if store.address and not store.address.is_private and store.tls is None:
            raise Invalid(
                f"{store.where}plugin.address: {store.address} is not loopback; give "
                "plugin.tls.ca.file, use a loopback address, or set allow_insecure: true"
            )


def _check_http(config: CommonConfig) -> None:
    """Beyond loopback HTTP needs TLS and a token."""
    if config.http_listen.is_private:
        return
    what = f"http.listen: {config.http_listen} is not loopback"
    if config.http_tls_cert_file is None:
        raise Invalid(
            f"{what} and has no TLS; give http.tls.cert.file and http.tls.key.file, use a loopback "
            "address, or set allow_insecure: true"
        )
    if config.http_token_file is None:
        raise Invalid(
            f"{what} and everybody could read metrics there; give http.token.file, or set "
            "allow_insecure: true"
        )


def _check_api(config: CommonConfig) -> None:
    """Beyond loopback the API needs TLS, and tokens or client certificates."""
    if config.grpc_listen.is_private:
        return
    what = f"grpc.listen: {config.grpc_listen} is not loopback"
    if config.grpc_tls is None:
        raise Invalid(
            f"{what} and has no TLS; give grpc.tls.cert.file and grpc.tls.key.file, "
            "use a loopback address, or set allow_insecure: true"
        )
    if config.api_token_file is None and config.grpc_tls_client_ca_file is None:
        raise Invalid(
            f"{what} and everybody could call there; give api.token.file or "
            "grpc.tls.client.ca.file, or set allow_insecure: true"
        )


def _check_disk_pressure(config: ServiceConfig) -> None:
    if config.on_disk_pressure == "giveback" and config.retention_takeover == "external":
        raise Invalid(
            "on.disk.pressure: must be alarm where retention.takeover is external: the service "
            "alters no topic's configuration then, and can give no retention back"
        )


def _check_kafka_clients(config: CommonConfig) -> None:
    config.kafka_security()


def _check_no_broker_is_asked(config: AttachedConfig) -> None:
    if config.api_authorization == BY_KAFKA:
        raise Invalid(
            "api.authorization: kafka, but an attached reader has no brokers to ask for ACLs; give "
            "api.principals.file and `file`"
        )


def _check_history_proxy(config: AttachedConfig) -> None:
    """Kafka clients of an attached reader have no rights of their own, and without certificates
    they are nobody. What is kept from some callers of the API is kept from all of them.
    """
    listen = config.proxy_listen
    check_proxy_tls(config)
    if listen is None and config.serves_tls:
        raise Invalid("proxy.tls.cert.file: goes with proxy.listen")
    if listen is None or config.allow_insecure:
        return
    what = f"proxy.listen: {listen}"
    if config.api_principals_file is not None:
        raise Invalid(
            f"{what} gives every client all topics, and api.principals.file would be passed by; "
            "take one of the two out, or set allow_insecure: true"
        )
    if config.proxy_tls_client_auth == "required":
        return
    remedy = "give proxy.tls.* with proxy.tls.client.auth: required"
    if not listen.is_private:
        raise Invalid(
            f"{what} is not loopback, and everybody could read there; {remedy}, use a loopback "
            "address, or set allow_insecure: true"
        )
    for name in ("api_token_file", "grpc_tls_client_ca_file"):
        if getattr(config, name) is not None:
            raise Invalid(
                f"{what} asks nobody who he is, and {settings()[name].key} would be passed by; "
                f"{remedy}, take one of the two out, or set allow_insecure: true"
            )


SERVICE_RULES: tuple[Callable[[ServiceConfig], None], ...] = (
    _check_kafka_clients,
    _check_provider,
    _check_tls,
    _check_peers,
    _check_authorization,
    check_proxy_clients,
    _check_exposure,
    _check_grace,
    _check_disk_pressure,
)
"""Of a service beside a broker, in the order in which they are checked."""

READER_RULES: tuple[Callable[[ReaderConfig], None], ...] = (
    _check_kafka_clients,
    _check_tls,
    _check_authorization,
    _check_exposure,
)

ATTACHED_RULES: tuple[Callable[[AttachedConfig], None], ...] = (
    _check_no_broker_is_asked,
    _check_history_proxy,
    _check_tls,
    _check_authorization,
    _check_exposure,
)
