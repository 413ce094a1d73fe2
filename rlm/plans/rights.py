"""The least rights of each role in a cluster with an authorizer: one table. Pure.

Commands, documentation, the checks of the service and the ACLs of a secured sandbox all come from
`RIGHTS`. Rights on topics can be given by name, by prefix or for all; two kinds cannot be limited
to names, and `REASONS` says why.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from kip405.acls import CLUSTER_NAME, PREFIXED, Acl, Pattern
from kip405.errors import Invalid
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

GROUPS_TOPIC = "__consumer_offsets"
EVERY = "*"
EACH_TOPIC = "each topic"
"""Stands for the topics that are enabled, or read, whatever their names are."""
OF_RESTORES = "rlm-restore."
"""All groups and transactional ids of `rlm restore` begin so."""
EACH_CLIENT = "each client"
"""Stands for the principals of the proxy's clients that are known by certificates."""


class Role(Enum):
    """Who connects to brokers with a principal of its own."""

    SERVICE = "service"
    READER = "reader"
    SPARK = "spark"
    OPERATOR = "operator"
    RESTORE = "restore"


class When(Enum):
    """In which case a right is needed."""

    ALWAYS = "always"
    FIRST_START = "until both topics of the service exist"
    TIER = "with a topic in mode `tier`"
    TAKEOVER = "with a topic in mode `tier`, unless `retention.takeover` is `external`"
    TIER_OR_API = "with a topic in mode `tier`, or with `api.authorization: kafka`"
    API = "with `api.authorization: kafka`"
    SHARE_GROUPS = "with a topic in mode `tier` that share groups read"
    CERTIFICATES = "with `proxy.tls.client.identity: delegation-token`"
    YES = "with `--yes`"
    NEW_TOPIC = "where the topic is not there yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One row: an operation that a role needs. `needed_by` is the code that uses it, `without` what
    a lack of it stops.
    """

    role: Role
    resource_type: str
    resource_name: str
    operation: str
    needed_by: str
    without: str
    when: When = When.ALWAYS


_NOT_READ = "What is remote is not known: nothing is copied, trimmed or served."
_NOT_WRITTEN = "Nothing is copied, trimmed or deleted, and no topic is enabled."


def _rows(
    role: Role, kind: str, names: Sequence[str], *rows: tuple[str, str, str, When]
) -> Iterator[Right]:
    for name in names:
        for operation, needed_by, without, when in rows:
            yield Right(
                role=role,
                resource_type=kind,
                resource_name=name,
                operation=operation,
                needed_by=needed_by,
                without=without,
                when=when,
            )


_OUR_TOPICS = (LEDGER_TOPIC, SETTINGS_TOPIC)
_CLUSTER = (CLUSTER_NAME,)
_RESTORE_TARGET = "rlm/restore/target.py"
_NOT_RESTORED = "Nothing is restored."
_NO_PROGRESS = "How far a restore came cannot be kept: nothing is restored."
_ALWAYS, _TIER = When.ALWAYS, When.TIER

RIGHTS: tuple[Right, ...] = (
    *_rows(
        Role.SERVICE,
        "Cluster",
        _CLUSTER,
        (
            "DescribeConfigs",
            "rlm/broker/own_broker.py",
            "The service cannot prove which broker it is beside, and does not start.",
            _ALWAYS,
        ),
        (
            "Describe",
            "rlm/broker/share_groups.py, rlm/topics/cluster.py, rlm/api/authorizers.py",
            "Brokers would hide groups, so nothing is trimmed, and they would not say what callers "
            "of the API may do, so none is let in by that.",
            When.TIER_OR_API,
        ),
    ),
    *_rows(
        Role.SERVICE,
        "Topic",
        _OUR_TOPICS,
        (
            "Create",
            "rlmm/topic.py",
            "The service waits until somebody creates them.",
            When.FIRST_START,
        ),
        ("Read", "rlmm/tail.py, rlmm/end_offsets.py", _NOT_READ, _ALWAYS),
        ("Write", "rlmm/publisher.py", _NOT_WRITTEN, _ALWAYS),
        ("Describe", "rlmm/end_offsets.py, rlmm/clients.py", _NOT_READ, _ALWAYS),
        (
            "DescribeConfigs",
            "rlmm/topic.py",
            "Whether the topics may still be relied upon is not known: nothing is trimmed.",
            _ALWAYS,
        ),
    ),
    *_rows(
        Role.SERVICE,
        "Topic",
        (EACH_TOPIC,),
        (
            "Describe",
            "rlm/broker/many.py, rlm/broker/leadership.py",
            "The topic is not seen: nothing of it is copied.",
            _ALWAYS,
        ),
        (
            "DescribeConfigs",
            "rlm/broker/many.py",
            "Its retention is not known: nothing of it is copied, trimmed or expired.",
            _ALWAYS,
        ),
        (
            "Read",
            "rlm/broker/own_broker.py, rlm/tasks/evidence.py",
            "What a trim would delete cannot be compared with its copy: it is not trimmed.",
            _TIER,
        ),
        ("Delete", "rlm/broker/deletions.py", "It is not trimmed: the disk fills.", _TIER),
        (
            "AlterConfigs",
            "rlm/topics/takeover.py",
            "Its retention cannot be taken over or given back: it is not enabled or disabled.",
            When.TAKEOVER,
        ),
    ),
    *_rows(
        Role.SERVICE,
        "Topic",
        (GROUPS_TOPIC,),
        (
            "Describe",
            "rlm/broker/share_groups.py",
            "What share groups still have to read is not known: nothing is trimmed.",
            _TIER,
        ),
    ),
    *_rows(
        Role.SERVICE,
        "Group",
        (EVERY,),
        (
            "Describe",
            "rlm/topics/cluster.py, rlm/broker/share_groups.py",
            "What a group still has to read is not known: topics are not trimmed.",
            _TIER,
        ),
        (
            "DescribeConfigs",
            "rlm/broker/share_groups.py",
            "Where a share group begins is not known: topics that it reads are not trimmed.",
            When.SHARE_GROUPS,
        ),
    ),
    *_rows(
        Role.SERVICE,
        "User",
        (EACH_CLIENT,),
        (
            "CreateTokens",
            "rlm/broker/delegation_tokens.py",
            "A client whose certificate is this principal is refused.",
            When.CERTIFICATES,
        ),
    ),
    *_rows(
        Role.READER,
        "Topic",
        _OUR_TOPICS,
        ("Read", "rlmm/tail.py", "Nothing is served.", _ALWAYS),
        ("Describe", "rlmm/end_offsets.py, rlmm/clients.py", "Nothing is served.", _ALWAYS),
        (
            "DescribeConfigs",
            "rlmm/topic.py",
            "Whether it reads the right topics is not known: nothing is served.",
            _ALWAYS,
        ),
    ),
    *_rows(
        Role.READER,
        "Topic",
        (SETTINGS_TOPIC,),
        (
            "Write",
            "rlm/service/heartbeat.py",
            "It publishes no heartbeat: neither `rlm status` nor Spark finds it.",
            _ALWAYS,
        ),
    ),
    *_rows(
        Role.READER,
        "Cluster",
        _CLUSTER,
        (
            "Describe",
            "rlm/api/authorizers.py",
            "What callers of the API may do is not known: none is let in by ACLs.",
            When.API,
        ),
    ),
    *_rows(
        Role.SPARK,
        "Topic",
        (EACH_TOPIC,),
        (
            "Describe",
            "tiered_reads/kafka_client.py",
            "Partitions and offsets are not known: the query fails.",
            _ALWAYS,
        ),
        (
            "Read",
            "tiered_reads/fetch_client.py",
            "Records that are not remote yet are not read: the query fails.",
            _ALWAYS,
        ),
    ),
    *_rows(
        Role.OPERATOR,
        "Cluster",
        _CLUSTER,
        ("Describe", "rlm/broker/acls.py", "`rlm acls --check` cannot ask.", _ALWAYS),
    ),
    *_rows(
        Role.OPERATOR,
        "Topic",
        _OUR_TOPICS,
        *(
            (
                operation,
                "rlm/service/store_command.py",
                "`rlm reconcile` and `rlm ledger rebuild` do not start.",
                _ALWAYS,
            )
            for operation in ("Read", "Describe", "DescribeConfigs")
        ),
        ("Write", "rlm/service/store_command.py", "They show, and write nothing.", When.YES),
    ),
    *_rows(
        Role.OPERATOR,
        "Topic",
        (LEDGER_TOPIC,),
        (
            "Create",
            "rlm/service/ledger_rebuild.py",
            "`rlm ledger rebuild` cannot replace a ledger topic that is gone.",
            When.YES,
        ),
    ),
    *_rows(
        Role.RESTORE,
        "Topic",
        (EACH_TOPIC,),
        ("Create", _RESTORE_TARGET, "Create the topic yourself before.", When.NEW_TOPIC),
        ("Describe", _RESTORE_TARGET, "The topic is not seen.", _ALWAYS),
        ("DescribeConfigs", _RESTORE_TARGET, _NOT_RESTORED, _ALWAYS),
        ("Read", _RESTORE_TARGET, _NOT_RESTORED, _ALWAYS),
        ("Write", "rlm/restore/transactions.py", _NOT_RESTORED, _ALWAYS),
    ),
    *_rows(
        Role.RESTORE,
        "Group",
        (OF_RESTORES,),
        ("Describe", "rlm/restore/transactions.py", _NO_PROGRESS, _ALWAYS),
        ("Read", "rlm/restore/transactions.py", _NO_PROGRESS, _ALWAYS),
    ),
    *_rows(
        Role.RESTORE,
        "TransactionalId",
        (OF_RESTORES,),
        ("Write", "rlm/restore/transactions.py", _NOT_RESTORED, _ALWAYS),
    ),
)

REASONS: tuple[tuple[str, str], ...] = (
    (
        "groups",
        "Any group may read an enabled topic, and one that the service may not see would be "
        "overtaken by a trim. So Describe is for `*`: it shows a group's offsets and members, and "
        "no record.",
    ),
    (
        "the cluster",
        "Kafka knows one cluster resource, without names. Describe and DescribeConfigs there "
        "change nothing.",
    ),
    (
        "clients that are known by certificates",
        "Whoever may create tokens of a principal can be that principal. Name the principals of "
        "your clients, or their prefix, and no super user.",
    ),
    (
        "topics",
        "All others are by name or prefix. A topic that the service may not describe is as if "
        "it did not exist.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics of `EACH_TOPIC`: by name, or all with a prefix; all of them by default. `clients`:
    the principals of `EACH_CLIENT`, as in User:alice; one that ends with `*` is a prefix.
    """

    names: tuple[str, ...] = ()
    prefix: str = ""
    clients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.names and self.prefix:
            raise Invalid("topics by name and by prefix: give one of them")

    def patterns(self) -> tuple[tuple[str, Pattern], ...]:
        """Each resource name, and how it is meant."""
        if self.prefix:
            return ((self.prefix, PREFIXED),)
        return tuple((name, "literal") for name in self.names or (EVERY,))

    def client_patterns(self) -> tuple[tuple[str, Pattern], ...]:
        """The same for the principals of clients."""
        return tuple(
            (name.removesuffix(EVERY), PREFIXED) if name.endswith(EVERY) else (name, "literal")
            for name in self.clients
        )


EVERY_CASE = frozenset(When)
COPY_CASES = frozenset({When.ALWAYS, When.FIRST_START, When.YES, When.NEW_TOPIC})
USUAL_CASES = COPY_CASES | {When.TIER, When.TIER_OR_API, When.TAKEOVER}


def rights_of(role: Role, cases: Collection[When] = EVERY_CASE) -> tuple[Right, ...]:
    """The rows of a role that are needed in these cases."""
    return tuple(row for row in RIGHTS if row.role is role and row.when in cases)


def operations_on(role: Role, resource_name: str, cases: Collection[When]) -> tuple[str, ...]:
    """What a role needs of one resource, as the table names it."""
    return tuple(
        row.operation for row in rights_of(role, cases) if row.resource_name == resource_name
    )


def acls_of(right: Right, principal: str, topics: Topics) -> tuple[Acl, ...]:
    """The ACLs that give a principal this right."""
    if right.resource_name == EACH_TOPIC:
        patterns = topics.patterns()
    elif right.resource_name == EACH_CLIENT:
        patterns = topics.client_patterns()
    elif right.resource_name == OF_RESTORES:
        patterns = ((OF_RESTORES, PREFIXED),)
    else:
        patterns = ((right.resource_name, "literal"),)
    return tuple(
        Acl(
            resource_type=right.resource_type,
            resource_name=name,
            operation=right.operation,
            principal=principal,
            pattern=pattern,
        )
        for name, pattern in patterns
    )


def least_acls(
    role: Role, principal: str, topics: Topics, cases: Collection[When] = USUAL_CASES
) -> tuple[Acl, ...]:
    """All ACLs that a principal in this role needs."""
    found = {acl for right in rights_of(role, cases) for acl in acls_of(right, principal, topics)}
    return tuple(sorted(found))


def generate_docs() -> str:
    """The whole text of docs/reference/acls.md."""
    head = (
        "# Rights in a cluster with an authorizer\n\n"
        "`rlm acls` prints these rights as commands or as a Strimzi KafkaUser, and `rlm acls "
        "--check` asks the cluster which of them are missing. Made from `rlm/plans/rights.py`; "
        'edit there. "Each topic" is a name, a prefix or `*`, as you choose, and "each client" a '
        "principal or a prefix of principals.\n\n"
        "## What cannot be limited to names\n\n"
    )
    reasons = "".join(f"- **{what}**: {why}\n" for what, why in REASONS)
    return head + reasons + "".join(map(_section, Role))


_TITLES = {
    Role.SERVICE: "The service beside a broker (`service`)",
    Role.READER: "A service without a broker (`reader`)",
    Role.SPARK: "Spark (`spark`)",
    Role.OPERATOR: "Commands that connect to Kafka themselves (`operator`)",
    Role.RESTORE: "`rlm restore`, in the cluster that gets the records (`restore`)",
}


_TYPES = {"Group": "group", "TransactionalId": "transactional id"}


def _section(role: Role) -> str:
    lines = "".join(
        f"| {_shown(row)} | {row.operation} | {row.when.value} | {_code(row)} | {row.without} |\n"
        for row in rights_of(role)
    )
    columns = "| resource | operation | when | needed by | without it |\n|---|---|---|---|---|\n"
    return f"\n## {_TITLES[role]}\n\n{columns}{lines}"


def _shown(row: Right) -> str:
    if row.resource_type == "Cluster":
        return "the cluster"
    if row.resource_name in (EACH_TOPIC, EACH_CLIENT):
        return row.resource_name
    if row.resource_name == OF_RESTORES:
        return f"each {_TYPES[row.resource_type]} that begins with `{OF_RESTORES}`"
    return f"{row.resource_type.lower()} `{row.resource_name}`"


def _code(row: Right) -> str:
    return ", ".join(f"`{path}`" for path in row.needed_by.split(", "))
