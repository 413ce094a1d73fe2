"""A sandbox in the place of overlays/strimzi's brokers, with what Strimzi's operators make.

The users of the overlay with the rights that it gives them and no others, its topic, and the
Secrets that it only refers to. The brokers' certificates are of the sandbox's own authority, those
of `rlm-tls` of another one, as in a cluster of Strimzi.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from kip405.acls import CLUSTER_NAME, Acl
from rlm.config.service import ReaderConfig, settings
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.services import QUICK_SERVICE
from rlm_sandbox.spec import loopback
from tests.builders import secured_clients
from tests.builders.certificates import Authority
from tests.deploy.manifests import Container, Manifest, containers, of_kind, rendered
from tests.deploy.pod_processes import Files, PodProcess, Surroundings, without_mount
from tests.forked_commands import Ended
from tests.scenarios.authorizer import binding_of
from tests.scenarios.cluster import SMALL_SEGMENTS, Cluster

NAME = "overlays/strimzi"
COMPANION, READER = "rlm-0-0", "rlm-reader"
TOPIC = "orders"
PROXY, GRPC, HTTP = 19092, 19093, 19094
_CLAIM = "data-0-my-cluster-brokers-0"
_BROKER = "my-cluster-brokers-0.my-cluster-kafka-brokers.kafka.svc"
_BOOTSTRAP = "my-cluster-kafka-bootstrap.kafka.svc:9093"
_LIMIT_S = 120
_ITERATIONS = 4096
_NONE: Mapping[str, Files] = MappingProxyType({})


def container(pod: str) -> Container:
    """The one of that pod."""
    (found,) = (one for one in containers(rendered(NAME)) if one.pod == pod)
    return found


class StrimziCluster(Cluster):
    """Clients are the super user. `folder` is for Secrets and the broker's volume."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._authority = Authority(folder, "of-rlm-tls")
        client = secured_clients.librdkafka(sandbox.json, "admin", proxy=True)
        super().__init__(sandbox, {**client, "ssl.ca.location": str(self._authority.ca_file)})
        self._folder = folder
        self._reserved = PortReservation()
        self._reader = {GRPC: self._reserved.take(), HTTP: self._reserved.take()}
        self._reserved.lend_all()
        (folder / _CLAIM).mkdir()
        (folder / _CLAIM / "kafka-log0").symlink_to(sandbox.log_dirs()[0])
        self.secrets = self._secrets()
        self.asked: PodProcess | None = None
        """The pod whose service commands ask, inside of it."""

    def close(self) -> None:
        super().close()
        self._reserved.release_all()

    def _admin_config(self) -> dict[str, Any]:
        return secured_clients.librdkafka(self.sandbox.json, "admin")

    def _command(self, arguments: tuple[str, ...], timeout_s: float) -> Ended:
        """As `kubectl exec` has it: with the files that are mounted in that pod."""
        assert self.asked is not None
        host, port = self.asked.address(GRPC)
        tls = ("--tls-ca", "/etc/rlm/tls/ca.crt", "--token-file", "/etc/rlm/api/token")
        words = ["rlm", *arguments, "--address", f"{host}:{port}", *tls]
        done = self.asked.execute(words, timeout_s)
        said = f"{done.stderr}{self.asked.said()}" if done.returncode else done.stderr
        return Ended(done.args, done.returncode, done.stdout, said)

    def _secrets(self) -> dict[str, Files]:
        shown = self._authority.issue("rlm", "127.0.0.1")
        document = self.sandbox.json
        passwords = {
            "rlm": document["security"]["rlm"]["password"],
            "rlm-reader": "of-the-user-operator",
        }
        return {
            "my-cluster-cluster-ca-cert": {"ca.crt": Path(document["security"]["ca"]).read_bytes()},
            **{user: {"password": word.encode()} for user, word in passwords.items()},
            "rlm-tls": {
                "tls.crt": shown.cert_file.read_bytes(),
                "tls.key": shown.key_file.read_bytes(),
                "ca.crt": self._authority.ca_file.read_bytes(),
            },
            "rlm-api": {"token": b"of-the-api", "http-token": b"of-the-monitoring"},
            "rlm-store": {"credentials": self.sandbox.layout.store_credentials.read_bytes()},
        }

    def pod(
        self, name: str, folder: Path, secrets: Mapping[str, Files] = _NONE, forgets: str = ""
    ) -> PodProcess:
        """A pod of the overlay, not started. `secrets`: others than there should be; `forgets`: a
        mount that is not in its manifest.
        """
        found = container(name)
        changed = without_mount(found, forgets) if forgets else found
        own = self.sandbox.state.ports[1]
        is_reader = changed.pod == READER
        store = self.sandbox.json["store"]
        named = {
            "rsm.config.s3.bucket.name": store["bucket"],
            "rsm.config.s3.region": store["region"],
            **(
                {"cluster.id": self.sandbox.state.cluster_id}
                if is_reader
                else {"node.id": 1, "broker.tiered.listener.name": "TIERED"}
            ),
        }
        given = Surroundings(
            secrets={**self.secrets, **secrets},
            claims={_CLAIM: self._folder / _CLAIM},
            addresses={
                f"{_BROKER}:9093": loopback(own.direct),
                f"{_BROKER}:9094": loopback(own.tiered),
                _BOOTSTRAP: loopback(own.direct),
                f"rlm-0.kafka.svc:{PROXY}": loopback(own.proxy),
                f"rlm-0.kafka.svc:{GRPC}": loopback(own.grpc),
                f"rlm-reader.kafka.svc.cluster.local:{GRPC}": loopback(self._reader[GRPC]),
            },
            settings=named,
            added=_of_one_broker(store, is_reader=is_reader),
        )
        ports = {PROXY: own.proxy, GRPC: own.grpc, HTTP: own.http}
        ports = self._reader if is_reader else ports
        return PodProcess(changed, rendered(NAME), folder, given, ports)

    def operate(self) -> None:
        """What Strimzi's operators do with KafkaUser and KafkaTopic: users have the rights that the
        manifests give them, in the place of the sandbox's, and the topic is there.
        """
        users = of_kind(rendered(NAME), "KafkaUser")
        every = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any name
            ResourcePatternType.ANY,
            "User:rlm",
            None,  # type: ignore[arg-type]  # any host
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for deleted in self.admin.delete_acls([every]).values():
            assert list(deleted.result(_LIMIT_S)), "the sandbox gave none"
        acls = [acl for user in users.values() for acl in _acls(user)]
        for created in self.admin.create_acls(list(map(binding_of, acls))).values():
            created.result(_LIMIT_S)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, credential, self.secrets[user]["password"])
            for user in users
        ]
        for altered in self.admin.alter_user_scram_credentials(changes).values():
            altered.result(_LIMIT_S)
        (topic,) = of_kind(rendered(NAME), "KafkaTopic").values()
        config = {key: str(value) for key, value in topic["spec"]["config"].items()}
        one_broker = {"min.insync.replicas": "1", **SMALL_SEGMENTS}
        self.create_topic(topic["metadata"]["name"], configs={**config, **one_broker})


def _of_one_broker(store: Mapping[str, Any], *, is_reader: bool) -> dict[str, Any]:
    """Where the sandbox's store is, and what a test wants to see within seconds."""
    added = {
        "rsm.config.s3.endpoint.url": store["endpoint"],
        "rsm.config.s3.path.style.access.enabled": True,
    }
    allowed = {row.key for row in settings(ReaderConfig).values()}
    quick = {key: one for key, one in QUICK_SERVICE.items() if not is_reader or key in allowed}
    if not is_reader:
        added["rlmm.config.remote.log.metadata.topic.replication.factor"] = 1
    return {**added, **quick}


def _acls(user: Manifest) -> list[Acl]:
    """What a KafkaUser gives its user."""
    found = []
    for row in user["spec"]["authorization"]["acls"]:
        kind, name = row["resource"]["type"], row["resource"].get("name", CLUSTER_NAME)
        assert row["resource"].get("patternType", "literal") == "literal"
        found += [
            Acl(
                resource_type=kind.capitalize(),
                resource_name=name,
                operation=operation,
                principal=f"User:{user['metadata']['name']}",
            )
            for operation in row["operations"]
        ]
    return found
