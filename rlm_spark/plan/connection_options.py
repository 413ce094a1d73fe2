"""Parses the options of the connection: Kafka, the fetch API, the read mode.

They become the `ConnectorOptions` that executors get. Pure: the function that reads the token's
file is an argument. No message contains a secret.
"""

from collections.abc import Callable
from typing import Final

from rlm_spark.plan.offset_specs import OptionError
from rlm_spark.plan.option_map import Isolation, OptionMap
from tiered_reads.values import ConnectorOptions, ReadMode, ServiceConnection, is_fit, token_of

_KAFKA_PREFIX: Final = "kafka."
_SERVERS: Final = "kafka.bootstrap.servers"
_ISOLATION: Final = "kafka.isolation.level"


def connector_options(
    given: OptionMap, *, user: str, read_text: Callable[[str], str]
) -> ConnectorOptions:
    """The options that executors need; OptionError."""
    mode: ReadMode = given.value("readMode")
    service = _service(given, user=user, read_text=read_text)
    kafka = {
        key.removeprefix(_KAFKA_PREFIX): value
        for key, value in given.items()
        if key.startswith(_KAFKA_PREFIX)
    }
    _check_reachable(given, mode, has_service=service is not None)
    return ConnectorOptions(
        read_mode=mode,
        kafka=kafka,
        service=service,
        read_committed=given.value(_ISOLATION) is Isolation.READ_COMMITTED,
        fail_on_data_loss=given.value("failOnDataLoss"),
        poll_timeout_ms=given.value("kafkaConsumer.pollTimeoutMs"),
        fetch_offset_retries=given.value("fetchOffset.numRetries"),
        fetch_offset_retry_interval_ms=given.value("fetchOffset.retryIntervalMs"),
    )


def _check_reachable(given: OptionMap, mode: ReadMode, *, has_service: bool) -> None:
    has_kafka = given.value(_SERVERS) is not None
    if _SERVERS in given and not has_kafka:
        raise OptionError(f"Option '{_SERVERS}' is empty")
    if mode is ReadMode.KAFKA_ONLY and not has_kafka:
        raise OptionError(
            f"Option '{_SERVERS}' must be specified for configuring Kafka consumer "
            "(readMode is kafka_only)"
        )
    if not has_kafka and not has_service:
        raise OptionError(
            f"Option '{_SERVERS}' must be specified for configuring Kafka consumer, or "
            "'rlm.endpoints' for reading through the fetch API"
        )
    if mode is not ReadMode.KAFKA_ONLY and not has_service:
        raise OptionError(
            f"Option 'rlm.endpoints' must be specified for readMode {mode.value}: addresses of "
            "the fetch API. With readMode kafka_only only Kafka's own log is read."
        )


def _service(
    given: OptionMap, *, user: str, read_text: Callable[[str], str]
) -> ServiceConnection | None:
    if "rlm.endpoints" not in given:
        return None
    endpoints = tuple(
        dict.fromkeys(each.strip() for each in given["rlm.endpoints"].split(",") if each.strip())
    )
    if not endpoints:
        raise OptionError("Option 'rlm.endpoints' is empty: give host:port, ...")
    cert_file, key_file = given.value("rlm.tls.cert.file"), given.value("rlm.tls.key.file")
    if (cert_file is None) != (key_file is None):
        raise OptionError("rlm.tls.cert.file and rlm.tls.key.file go together: one is missing")
    return ServiceConnection(
        endpoints=endpoints,
        principal=_principal(given, user),
        token=_token(given, read_text),
        token_file=given.value("rlm.token.file"),
        tls_ca_file=given.value("rlm.tls.ca.file"),
        tls_cert_file=cert_file,
        tls_key_file=key_file,
        tls_server_name=given.value("rlm.tls.server.name"),
        call_timeout_ms=given.value("rlm.call.timeout.ms"),
    )


def _principal(given: OptionMap, user: str) -> str:
    """The principal in characters that a call can carry."""
    principal: str | None = given.value("rlm.principal")
    if principal is None:
        return "spark-" + "".join(one if is_fit(one) else "?" for one in user)
    if not is_fit(principal):
        raise OptionError("rlm.principal must be printable ASCII")
    return principal


def _token(given: OptionMap, read_text: Callable[[str], str]) -> str | None:
    """The token that calls send: that of a file where one is given."""
    token: str | None = given.value("rlm.token")
    path: str | None = given.value("rlm.token.file")
    if token is not None and path is not None:
        raise OptionError("give rlm.token or rlm.token.file, not both")
    if path is not None:
        try:
            text = read_text(path)
        except UnicodeDecodeError as error:
            raise OptionError(f"rlm.token.file {path} is not text") from error
        except OSError as error:
            raise OptionError(f"rlm.token.file {path} cannot be read: {error.strerror}") from error
        if not text.strip():
            raise OptionError(f"rlm.token.file {path} is empty")
        token = token_of(text)
        if token is None:
            raise OptionError(f"rlm.token.file {path} must hold printable ASCII")
    elif token is not None and not is_fit(token):
        raise OptionError("rlm.token must hold printable ASCII")
    return token
