"""One real broker with a listener for each way to be secured, as Kafka's own settings make it.

Sessions of SASL last `SESSION_MS`, so that a client that does not authenticate again is cut off
within seconds. SCRAM's users are made with the storage; PLAIN's user is in the broker's settings,
and tokens are unsecured JWS, which Kafka has for tests.
"""

import asyncio
import base64
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_clients.channel_security import ChannelSecurity
from kafka_clients.security import KafkaSecurity, Login, PasswordLogin, TlsFiles
from kip405.addresses import Address
from kip405.errors import RemoteStorageError
from kip405.settings import Secret
from rlm.broker.own_broker import OwnBroker
from rlm.clock import SystemClock
from rlm_sandbox.files import encode_properties
from rlm_sandbox.kafka_dist import KafkaDist, java_environment, resolve_kafka
from rlm_sandbox.nodes import LOG4J
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.processes import ProcessIdentity, spawn, stop_all
from tests.builders.certificates import Authority, Certificate

SESSION_MS = 4_000
ALICE, ALICES = "alice", "alice-knows-it"
LISTENERS = {
    "CONTROLLER": "PLAINTEXT",
    "BARE": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "SCRAMONLY": "SASL_PLAINTEXT",
}
_MODULES = "org.apache.kafka.common.security"
_MECHANISMS = {
    "plain": f'{_MODULES}.plain.PlainLoginModule required user_{ALICE}="{ALICES}";',
    "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
    "oauthbearer": (
        f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";'
    ),
}
_READY_S = 180.0


@dataclass(slots=True)
class SecuredKafka:
    """A running broker; `down` ends it."""

    folder: Path
    authority: Authority
    client: Certificate
    ports: Mapping[str, int]
    process: ProcessIdentity | None = None
    cluster_id: str = "c2VjdXJlZC1rYWZrYS0tMQ"

    def address(self, listener: str) -> Address:
        return Address(host="127.0.0.1", port=self.ports[listener])

    def tls(self, *, with_certificate: bool = False) -> TlsFiles:
        """What a client of this broker trusts and shows."""
        return TlsFiles(
            ca_file=str(self.authority.ca_file),
            cert_file=str(self.client.both_file) if with_certificate else None,
        )

    def security(
        self, listener: str, login: Login | None = None, tls: TlsFiles | None = None
    ) -> ChannelSecurity:
        """For a client of that listener."""
        protocol = LISTENERS[listener]
        if tls is None:
            tls = self.tls(with_certificate=listener == "MUTUAL")
        return ChannelSecurity(KafkaSecurity(protocol=protocol, tls=tls, login=login))

    @property
    def log(self) -> str:
        return (self.folder / "broker.log").read_text(encoding="utf-8", errors="replace")

    async def wait_ready(self) -> None:
        """RemoteStorageError after some time: what the broker said last."""
        own = OwnBroker(self.address("BARE"), client_id="ready")
        try:
            async with asyncio.timeout(_READY_S):
                while True:
                    try:
                        await own.describe_cluster()
                        return
                    except RemoteStorageError:
                        await asyncio.sleep(0.2)
        finally:
            await own.close()

    def down(self) -> None:
        if self.process is not None:
            stop_all([self.process], grace_ms=10_000, clock=SystemClock())
        shutil.rmtree(self.folder / "data", ignore_errors=True)


def alice(mechanism: str, password: str = ALICES) -> PasswordLogin:
    return PasswordLogin(mechanism=mechanism, username=ALICE, password=Secret(password))


def unsecured_jws(principal: str, *, lifetime_s: float = 3_600) -> str:
    """A token that the broker takes."""
    now = time.time()
    claims = {"sub": principal, "iat": now, "exp": now + lifetime_s}
    parts = (
        base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=")
        for one in ({"alg": "none"}, claims)
    )
    return ".".join((*parts, ""))


def start_secured_kafka(folder: Path, proxies: Mapping[str, int] | None = None) -> SecuredKafka:
    """Formats and starts the broker; see `wait_ready`. `proxies`: ports at which listeners are
    advertised instead of their own.
    """
    authority = Authority(folder, "clusters-authority")
    server = authority.issue("broker", "127.0.0.1", "localhost")
    reservation = PortReservation()
    ports = {listener: reservation.take() for listener in LISTENERS}
    made = SecuredKafka(
        folder=folder, authority=authority, client=authority.issue("client"), ports=ports
    )
    (folder / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
    file = folder / "server.properties"
    file.write_text(encode_properties(_properties(made, server, proxies or {})), encoding="utf-8")
    dist = resolve_kafka()
    _format(dist, file, made.cluster_id)
    reservation.release_all()
    jvm = (
        *("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
        *dist.class_archive.options(),
    )
    made.process = spawn(
        dist.java_command("kafka.Kafka", str(file), jvm=jvm),
        log=folder / "broker.log",
        environ=java_environment(),
        cwd=folder,
    )
    return made


def _format(dist: KafkaDist, file: Path, cluster_id: str) -> None:
    users = [
        f"{mechanism}=[name={ALICE},password={ALICES}]"
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    scram = [word for user in users for word in ("--add-scram", user)]
    done = dist.run_tool(
        "storage",
        *("format", "--cluster-id", cluster_id, "--config", str(file), *scram),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _properties(
    kafka: SecuredKafka, server: Certificate, proxies: Mapping[str, int]
) -> dict[str, str]:
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in kafka.ports.items()]
    advertised = [
        f"{name}://127.0.0.1:{proxies.get(name, port)}" for name, port in kafka.ports.items()
    ]
    bound = [one.replace("127.0.0.1", "0.0.0.0") for one in listeners]
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{kafka.ports['CONTROLLER']}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(bound),
        "advertised.listeners": ",".join(advertised[1:]),
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "BARE",
        "log.dirs": str(kafka.folder / "data"),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "connections.max.reauth.ms": str(SESSION_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.both_file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.authority.ca_file),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener in ("sasl", "sasltls", "scramonly"):
        names = ["scram-sha-512"] if listener == "scramonly" else list(_MECHANISMS)
        prefix = f"listener.name.{listener}"
        properties[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(names).upper()
        for name in names:
            properties[f"{prefix}.{name}.sasl.jaas.config"] = _MECHANISMS[name]
    return properties
