"""`rlm acls`: the least rights of a principal, as commands, as a Strimzi KafkaUser, or checked."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kip405.acls import PREFIXED, Acl, AclEntry, MissingAcls, by_resource, grants
from kip405.addresses import Address
from kip405.errors import Invalid, NotFound
from rlm.cli.brokers import chosen_brokers
from rlm.plans.authorizer import Lack, lacking
from rlm.plans.rights import USUAL_CASES, Right, Role, Topics, When, acls_of, least_acls, rights_of
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

if TYPE_CHECKING:  # the command loads what it needs
    from kafka_clients.security import KafkaSecurity

_CLIENT_ID = "rlm-command"
EXIT_MISSING = 1
_USER = "User:"
_KAFKA_ACLS = "kafka-acls"
_STRIMZI = "strimzi"
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_STRIMZI_HEAD = """\
# Strimzi before 0.49 has kafka.strimzi.io/v1beta2. Name your cluster, and add the `authentication`
# of this user, for whom Strimzi keeps these ACLs and no others.
"""


@click.command()
@click.option("--principal", required=True, help="Who needs the rights, as in User:rlm.")
@click.option(
    "--role",
    default=Role.SERVICE.value,
    show_default=True,
    type=click.Choice([role.value for role in Role]),
    help="service: beside a broker. reader: without one. spark: queries. operator: commands that "
    "connect to Kafka themselves. restore: `rlm restore` into topics of this cluster.",
)
@click.option("--topics", metavar="T1,T2", help="Topics by name (default: every topic).")
@click.option("--prefix", help="Topics whose names begin so.")
@click.option(
    "--mode",
    default="tier",
    show_default=True,
    type=click.Choice(["copy", "tier"]),
    help="copy: no topic will be trimmed, which needs less.",
)
@click.option(
    "--external-retention",
    is_flag=True,
    help="The services have retention.takeover: external, and alter no topic.",
)
@click.option(
    "--share-groups",
    is_flag=True,
    help="Share groups read topics that are trimmed.",
)
@click.option(
    "--client-principals",
    metavar="User:A,User:B*",
    help="The services have proxy.tls.client.identity: delegation-token, and these principals are "
    "their clients'; one that ends with * is a prefix. Name no super user.",
)
@click.option(
    "--api-acls",
    is_flag=True,
    help="The services have api.authorization: kafka, and ask for the ACLs of their callers.",
)
@click.option(
    "--format",
    "as_format",
    default=_KAFKA_ACLS,
    show_default=True,
    type=click.Choice([_KAFKA_ACLS, _STRIMZI]),
    help="Commands for kafka-acls.sh, or a Strimzi KafkaUser.",
)
@click.option("--check", is_flag=True, help="Ask the cluster, and print what is missing.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="With --check: YAML file of a service, whose kafka.* settings say how to connect.",
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,...",
    help="With --check: brokers to ask instead of kafka.bootstrap.servers.",
)
def acls(
    *,
    principal: str,
    role: str,
    topics: str | None,
    prefix: str | None,
    mode: str,
    external_retention: bool,
    share_groups: bool,
    client_principals: str | None,
    api_acls: bool,
    as_format: str,
    check: bool,
    config: Path | None,
    bootstrap: str | None,
) -> int:
    """Print the ACLs that a principal needs, or check that the cluster has them.

    With --check the exit status is 1 if any is missing. The principal that asks needs Describe on
    the cluster. Super users need no ACL, but no ACL shows who they are.
    """
    if not principal.startswith(_USER) or principal == _USER:
        raise Invalid(f"--principal: must begin with {_USER}, as in User:rlm, got {principal!r}")
    clients = _clients(client_principals)
    chosen = Topics(names=_names(topics), prefix=prefix or "", clients=clients)
    cases = _cases(
        mode, external_retention=external_retention, share_groups=share_groups, api_acls=api_acls
    )
    cases |= {When.CERTIFICATES} if clients else set()
    if check:
        addresses, security = _where(config, bootstrap)
        return _check(Role(role), principal, chosen, cases, addresses, security)
    if config is not None or bootstrap is not None:
        raise Invalid("--config and --bootstrap go with --check")
    needed = least_acls(Role(role), principal, chosen, cases)
    if as_format == _STRIMZI:
        click.echo(kafka_user(principal, needed), nl=False)
    else:
        _show_commands(needed)
    return 0


def _names(topics: str | None) -> tuple[str, ...]:
    if topics is None:
        return ()
    names = tuple(name.strip() for name in topics.split(","))
    if not all(names):
        raise Invalid("--topics: must be names with commas between them")
    return names


def _clients(principals: str | None) -> tuple[str, ...]:
    if principals is None:
        return ()
    names = tuple(name.strip() for name in principals.split(","))
    if not all(name.startswith(_USER) for name in names):
        raise Invalid(f"--client-principals: each must begin with {_USER}, as in User:app-*")
    return names


def _cases(
    mode: str, *, external_retention: bool, share_groups: bool, api_acls: bool
) -> frozenset[When]:
    cases = USUAL_CASES | ({When.SHARE_GROUPS} if share_groups else set())
    if mode == "copy":
        cases -= {When.TIER, When.TIER_OR_API, When.SHARE_GROUPS}
    if api_acls:
        cases |= {When.TIER_OR_API, When.API}
    if mode == "copy" or external_retention:
        cases -= {When.TAKEOVER}
    return cases


def _show_commands(needed: Iterable[Acl]) -> None:
    for options in grants(needed):
        click.echo(f"kafka-acls.sh --bootstrap-server BROKER {options}")


def kafka_user(principal: str, needed: Iterable[Acl]) -> str:
    """The YAML of a KafkaUser. Invalid where Strimzi can have no user of this principal."""
    import yaml

    name = principal.removeprefix(_USER).removeprefix("CN=")
    if not _OBJECT_NAME.fullmatch(name):
        raise Invalid(
            f"--principal: {name!r} cannot be the name of a KafkaUser: lower case letters, digits, "
            "'-' and '.'"
        )
    if any(acl.resource_type == "User" for acl in needed):
        raise Invalid(
            "--client-principals: a KafkaUser can have no right on principals: give it by the "
            f"command that --format {_KAFKA_ACLS} prints"
        )
    rules = [_rule(acls_of_resource) for acls_of_resource in by_resource(needed)]
    document: dict[str, Any] = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": "CLUSTER"}},
        "spec": {"authorization": {"type": "simple", "acls": rules}},
    }
    return _STRIMZI_HEAD + yaml.safe_dump(document, sort_keys=False, width=100)


def _rule(acls_of_resource: Sequence[Acl]) -> dict[str, Any]:
    first = acls_of_resource[0]
    resource = {"type": first.resource_type[0].lower() + first.resource_type[1:]}
    if first.resource_type != "Cluster":
        pattern = "prefix" if first.pattern == PREFIXED else "literal"
        resource |= {"name": first.resource_name, "patternType": pattern}
    return {"resource": resource, "operations": [acl.operation for acl in acls_of_resource]}


def _where(config: Path | None, bootstrap: str | None) -> "tuple[Sequence[Address], KafkaSecurity]":
    """The brokers to ask, and how."""
    if config is None and bootstrap is None:
        raise Invalid("--check: give --config FILE of a service, or --bootstrap HOST:PORT")
    return chosen_brokers(config, bootstrap)


def _check(
    role: Role,
    principal: str,
    topics: Topics,
    cases: frozenset[When],
    addresses: "Sequence[Address]",
    security: "KafkaSecurity",
) -> int:
    from rlm.broker.acls import NoAuthorizer

    try:
        entries, has_topics = asyncio.run(_asked(addresses, security, principal))
    except NoAuthorizer as error:
        click.echo(str(error))
        return 0
    except MissingAcls as error:
        raise Invalid(f"this command's own principal may not ask: {error}") from error
    if has_topics:
        cases -= {When.FIRST_START}
    rows = list(_missing(rights_of(role, cases), principal, topics, entries))
    if not rows:
        click.echo(f"{principal} has all ACLs that the role {role.value} needs")
        return 0
    for right, lack in rows:
        why = "not allowed" if lack.denied_by is None else str(lack.denied_by)
        click.echo(f"missing ACL: {lack.acl}: {why}. {right.without}")
    click.echo()
    _show_commands(lack.acl for _, lack in rows if lack.denied_by is None)
    return EXIT_MISSING


async def _asked(
    addresses: "Sequence[Address]", security: "KafkaSecurity", principal: str
) -> tuple[tuple[AclEntry, ...], bool]:
    """The ACLs that there are, and whether both topics of the service are known to exist."""
    from kafka_clients.channel_security import ChannelSecurity
    from rlm.broker.acls import acls_of_principal
    from rlm.broker.own_broker import AnyBroker

    channel = ChannelSecurity(security)
    entries = await acls_of_principal(addresses, channel, principal)
    brokers = AnyBroker(addresses, client_id=_CLIENT_ID, security=channel)
    try:
        for topic in (SETTINGS_TOPIC, LEDGER_TOPIC):
            await brokers.topic(topic)
    except (MissingAcls, NotFound):
        return entries, False
    finally:
        await brokers.close()
    return entries, True


def _missing(
    rights: Iterable[Right], principal: str, topics: Topics, entries: Sequence[AclEntry]
) -> Iterator[tuple[Right, Lack]]:
    for right in rights:
        for lack in lacking(acls_of(right, principal, topics), entries):
            yield right, lack
