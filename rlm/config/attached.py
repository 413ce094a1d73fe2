"""The settings of `rlm attach`: those of a reader, without what only a cluster can answer."""

from dataclasses import dataclass

from kip405.addresses import Address
from kip405.settings import ADDRESSES, TCP, TEXT, choice, setting
from rlm.config.proxy_tls import ProxyTlsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedConfig(ProxyTlsConfig):
    """Checked settings of `rlm attach`: those of a reader without the ones of Kafka."""

    cluster_id: str = setting(
        "cluster.id",
        TEXT,
        "Id of the cluster whose segments are served.",
        default="",
        default_doc="that of the stores",
    )
    kafka_bootstrap_servers: tuple[Address, ...] = setting(
        "kafka.bootstrap.servers", ADDRESSES, "Not asked.", default=()
    )
    proxy_listen: Address | None = setting(
        "proxy.listen",
        TCP,
        "Where Kafka clients read the history, without rights.",
        default=None,
    )
    proxy_advertised: Address | None = setting(
        "proxy.advertised",
        TCP,
        "The address by which they reach it.",
        default=None,
        default_doc="proxy.listen",
    )
    proxy_tls_client_auth: str = setting(
        "proxy.tls.client.auth",
        choice("none", "requested", "required"),
        "Whether clients show a certificate. With `required` nobody reads there without one, and "
        "who has one reads everything.",
        default="none",
    )
