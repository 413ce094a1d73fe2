"""docs/reference/clients.md, from the table by which the tests run clients."""

from collections.abc import Iterator, Sequence

from build_tools.reference.markdown import table
from tests.scenarios.client_table import CLIENTS, InCi

_HEAD = (
    "# Clients that are tested\n\n"
    "Each of these clients, unmodified, reads topics of which only the remote store has the oldest "
    "records, through the proxies of three brokers: from the very start, by seek to old offsets, "
    "and as a member of a group. In the middle of its reading the leader of a partition changes, a "
    "service restarts, and another member joins the group. Every record is compared with what the "
    "brokers acknowledged. Each client does so with PLAINTEXT and with SASL_SSL (SCRAM-SHA-512, "
    "and TLS at the proxy), unless a remark says otherwise. Made from "
    "`tests/scenarios/client_table.py`; edit there.\n\n"
)
_TAIL = (
    "\n`make long` runs all of them, except kafkajs where a machine lacks Node.js or npm; Go comes "
    "from PyPI where a machine lacks it. CI runs those with `yes`: with PLAINTEXT as `make long` "
    "does, and with SASL_SSL in these three ways at the same time, while the leader of a partition "
    "changes. Of a client in another language than these, CI runs a group with PLAINTEXT, which "
    "reads from the very start and is joined by another member.\n"
)
_KAFKAJS = (
    "\n## kafkajs may give records again\n\n"
    "Told NOT_LEADER_OR_FOLLOWER, kafkajs joins its group again, and meanwhile goes on with "
    "records that other brokers have sent. A commit or heartbeat in that moment has the group's "
    "old generation and is refused with ILLEGAL_GENERATION; then kafkajs joins once more and "
    "begins where it has committed last. It does so whoever has answered. The tests read a topic "
    "that no service has touched from the brokers themselves, and move its leader to another "
    "replica and the old one away, until this happens. They also check, there and through the "
    "proxies, that nothing comes again from before the last commit that was acknowledged, that "
    "all after it comes in order, and that no record is left out.\n\n"
    "Through the proxies kafkajs learns of more changes of leader. It sends no leader epoch, and "
    "a broker that has become a follower still answers Fetch 11 and newer from its own log, as "
    "KIP-392 has it. For records that only the remote store has, the proxy beside it answers "
    "NOT_LEADER_OR_FOLLOWER, because only the leader knows which copies count (H4). A smaller "
    "`autoCommitInterval` makes what comes again less.\n"
)


def generate_docs() -> str:
    """The whole page."""
    columns = ("client", "lowest version", "tested", "group protocols", "in CI", "remarks")
    return _HEAD + table(columns, _rows()) + _TAIL + _KAFKAJS


def _rows() -> Iterator[Sequence[str]]:
    for name in dict.fromkeys(one.name for one in CLIENTS):
        of_name = [one for one in CLIENTS if one.name == name]
        versions = list(dict.fromkeys(one.version for one in of_name))
        protocols = dict.fromkeys(each for one in of_name for each in one.protocols)
        yield (
            name,
            versions[-1],
            ", ".join(versions),
            ", ".join(protocols),
            next(
                (one.in_ci for one in of_name if one.in_ci is not InCi.NOTHING), InCi.NOTHING
            ).value,
            "; ".join(dict.fromkeys(one.remark for one in of_name if one.remark)),
        )
