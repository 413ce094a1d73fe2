"""Which clients are tested against both tiers: the one table of the tests and of
docs/reference/clients.md. Pure.

A client with a program is run by `test_every_client.py` in every cell: from the very start, by seek
and as a member of a group, for each security and each protocol of groups that it has.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from rlm_sandbox.kafka_versions import SUPPORTED_KAFKA
from rlm_sandbox.spec import KAFKA_VERSION

PLAINTEXT, SASL_SSL = "PLAINTEXT", "SASL_SSL"
SECURITIES = (PLAINTEXT, SASL_SSL)
CLASSIC, CONSUMER = "classic", "consumer"


class InCi(enum.Enum):
    """What CI has the time for, of the first of a client's protocols. All else is in `make long`.
    The values are those of the documentation.
    """

    NOTHING = "no"
    AS_A_MEMBER = "as a member of a group, with PLAINTEXT"
    ALL = "yes"


class Program(enum.Enum):
    """What runs a client's reader."""

    HERE = "this environment"
    PYTHON = "an environment of its own, which uv makes"
    JAVA = "the sandbox's Java"
    STREAMS = "the sandbox's Java, as an application of Kafka Streams"
    GO = "Go"
    NODE = "Node.js and npm"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedClient:
    """One client in one version, with the securities that it can be given."""

    __test__ = False  # pytest takes the name for a class of tests

    name: str
    client: str
    version: str
    program: Program
    protocols: tuple[str, ...] = (CLASSIC,)
    securities: tuple[str, ...] = SECURITIES
    in_ci: InCi = InCi.NOTHING
    remark: str = ""

    @property
    def seeks(self) -> bool:
        """Whether it reads from offsets that its user chooses."""
        return self.program is not Program.STREAMS

    @property
    def reads_once(self) -> bool:
        """Whether a client that is alone gives each record once. kafkajs joins its group again on
        NOT_LEADER_OR_FOLLOWER, from a broker as from a proxy, while it works with records of other
        brokers; a commit of these is refused then, and it begins again where the last one was.
        """
        return self.program is not Program.NODE

    @property
    def id(self) -> str:
        """Of tests."""
        return f"{self.client}-{self.version}"


_OLDEST_JAVA, _LAST_JAVA_3 = (
    SUPPORTED_KAFKA[0].version,
    next(one.version for one in SUPPORTED_KAFKA if one.line == "3.9"),
)
_JAVA = "Java (kafka-clients)"
_SARAMA = "sarama (Go)"
_SARAMA_VERSION = "1.45.2"

CLIENTS: tuple[TestedClient, ...] = (
    TestedClient(
        name=_JAVA,
        client="java",
        version=KAFKA_VERSION,
        program=Program.JAVA,
        protocols=(CONSUMER, CLASSIC),
        in_ci=InCi.ALL,
    ),
    TestedClient(name=_JAVA, client="java", version=_LAST_JAVA_3, program=Program.JAVA),
    TestedClient(name=_JAVA, client="java", version=_OLDEST_JAVA, program=Program.JAVA),
    TestedClient(
        name="Kafka Streams",
        client="streams",
        version=KAFKA_VERSION,
        program=Program.STREAMS,
        remark="it reads as a member of a group only",
    ),
    TestedClient(
        name="librdkafka (confluent-kafka)",
        client="librdkafka",
        version=metadata.version("confluent-kafka"),
        program=Program.HERE,
        protocols=(CLASSIC, CONSUMER),
    ),
    TestedClient(
        name="aiokafka",
        client="aiokafka",
        version=metadata.version("aiokafka"),
        program=Program.HERE,
        in_ci=InCi.ALL,
    ),
    TestedClient(
        name="kafka-python",
        client="kafka-python",
        version=metadata.version("kafka-python"),
        program=Program.PYTHON,
    ),
    TestedClient(
        name="kafka-python",
        client="kafka-python",
        version="2.0.2",
        program=Program.PYTHON,
        securities=(PLAINTEXT,),
        remark="2.0 without SASL: it sends tokens outside of Kafka's frames (SaslHandshake v0), "
        "which the proxy refuses; from Python 3.12 on 2.0.6, as 2.0.2 cannot be imported there",
    ),
    TestedClient(
        name=_SARAMA,
        client="sarama-2.0",
        version=_SARAMA_VERSION,
        program=Program.GO,
        remark="`Config.Version` 2.0.0",
    ),
    TestedClient(
        name=_SARAMA,
        client="sarama-3.6",
        version=_SARAMA_VERSION,
        program=Program.GO,
        remark="`Config.Version` 3.6.0",
    ),
    TestedClient(
        name="franz-go (Go)",
        client="franz",
        version="1.21.4",
        program=Program.GO,
        in_ci=InCi.AS_A_MEMBER,
    ),
    TestedClient(
        name="segmentio kafka-go (Go)", client="segmentio", version="0.4.51", program=Program.GO
    ),
    TestedClient(
        name="kafkajs (Node.js)",
        client="kafkajs",
        version="2.2.4",
        program=Program.NODE,
        in_ci=InCi.AS_A_MEMBER,
        remark="it reads as a member of a group only, and goes back to its last commit when it "
        "learns that a leader has changed: see below",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One client with one security and one protocol of groups."""

    client: TestedClient
    security: str
    protocol: str

    @property
    def in_ci(self) -> InCi:
        """With SASL_SSL, all ways of reading at once."""
        is_first = self.protocol == self.client.protocols[0]
        return self.client.in_ci if is_first else InCi.NOTHING

    @property
    def id(self) -> str:
        return f"{self.client.id}-{self.protocol}"


def cells(security: str) -> Iterator[Cell]:
    """All of one security."""
    for client in (one for one in CLIENTS if security in one.securities):
        for protocol in client.protocols:
            yield Cell(client=client, security=security, protocol=protocol)
