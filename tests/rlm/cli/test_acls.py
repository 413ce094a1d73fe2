"""`rlm acls`: what it prints, and what it finds missing on a broker of Kafka's own bytes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from kafka_protocol.apis import DESCRIBE_ACLS, METADATA
from kip405.acls import Acl
from rlm.plans.rights import EVERY_CASE, Role, Topics, least_acls
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.fake_broker import FakeBroker
from tests.rlm.cli.invoking import assert_one_line, rlm

RLM = "User:rlm"
CODES = {"Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Describe": 8}
CODES |= {"DescribeConfigs": 10, "AlterConfigs": 11}
KINDS = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5}
ALLOW, DENY = 3, 2
LITERAL, PREFIXED = 3, 4


def resource(acl: Acl, permission: int = ALLOW) -> dict[str, Any]:
    row = {
        "principal": acl.principal,
        "host": "*",
        "operation": CODES[acl.operation],
        "permission_type": permission,
    }
    return {
        "resource_type": KINDS[acl.resource_type],
        "resource_name": acl.resource_name,
        "pattern_type": PREFIXED if acl.pattern == "prefixed" else LITERAL,
        "acls": [row],
    }


class Authorized:
    """A broker with ACLs; only those of the principal that is asked for are answered."""

    def __init__(
        self, broker: FakeBroker, acls: Iterable[Acl], denials: Iterable[Acl] = ()
    ) -> None:
        self.resources = [resource(one) for one in acls]
        self.resources += [resource(one, DENY) for one in denials]
        self.topic_error = 3
        broker.on(DESCRIBE_ACLS, self._acls)
        broker.on(METADATA, self._metadata)

    def _acls(self, body: Any) -> dict[str, Any]:
        assert (body["resource_type_filter"], body["pattern_type_filter"]) == (1, 1)
        asked = body["principal_filter"]
        found = [one for one in self.resources if one["acls"][0]["principal"] == asked]
        return {"error_code": 0, "error_message": None, "resources": found}

    def _metadata(self, body: Any) -> dict[str, Any]:
        names = [one["name"] for one in body["topics"]]
        rows = [{"error_code": self.topic_error, "name": name, "partitions": []} for name in names]
        return {"topics": rows}


async def checked(broker: FakeBroker, *more: str) -> Result:
    where = ("--bootstrap", str(broker.address))
    return await rlm("acls", "--principal", RLM, "--check", *where, *more)


async def test_commands_are_printed_for_the_chosen_topics_and_role() -> None:
    done = await rlm("acls", "--principal", "User:s", "--role", "spark", "--topics", "a, b")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:s "
        f"--operation Describe --operation Read --topic {name}"
        for name in "ab"
    ]


async def test_strimzi_has_its_own_names_of_what_a_restore_needs() -> None:
    done = await rlm(
        *("acls", "--principal", "User:r", "--role", "restore", "--topics", "orders"),
        *("--format", "strimzi"),
    )
    assert done.exit_code == 0
    rules = yaml.safe_load(done.stdout)["spec"]["authorization"]["acls"]
    found = {rule["resource"]["type"]: rule["resource"] for rule in rules}
    prefix = {"name": "rlm-restore.", "patternType": "prefix"}
    assert found["transactionalId"] == {"type": "transactionalId", **prefix}
    assert found["group"] == {"type": "group", **prefix}


async def test_modes_and_takeover_decide_what_is_printed() -> None:
    async def words(*more: str) -> set[str]:
        done = await rlm("acls", "--principal", RLM, "--topics", "a", *more)
        return {line.split(" --add ")[1] for line in done.stdout.splitlines()}

    copied, external = await words("--mode", "copy"), await words("--external-retention")
    usual, shared = await words(), await words("--share-groups")
    assert not [one for one in copied if "--group" in one or "Delete" in one]
    assert [one for one in external if "Delete" in one]
    assert not [one for one in external if "AlterConfigs" in one]
    assert [one for one in usual if "AlterConfigs" in one]
    (group,) = [one for one in shared if "--group" in one]
    assert group.endswith("--operation Describe --operation DescribeConfigs --group '*'")
    assert group not in usual


async def test_tokens_of_clients_are_given_for_named_principals() -> None:
    clients = ("--client-principals", "User:alice, User:team-*")
    done = await rlm("acls", "--principal", RLM, "--topics", "a", *clients)
    tokens = [line for line in done.stdout.splitlines() if "CreateTokens" in line]
    head = f"kafka-acls.sh --bootstrap-server BROKER --add --allow-principal {RLM}"
    assert tokens == [
        f"{head} --operation CreateTokens --user-principal User:alice",
        f"{head} --operation CreateTokens --user-principal User:team- "
        "--resource-pattern-type prefixed",
    ]


async def test_a_kafka_user_has_the_same_acls() -> None:
    command = ("acls", "--principal", "User:CN=rlm", "--prefix", "or", "--format", "strimzi")
    user = yaml.safe_load((await rlm(*command)).stdout)
    assert (user["kind"], user["metadata"]["name"]) == ("KafkaUser", "rlm")
    rules = user["spec"]["authorization"]["acls"]
    got = {
        (
            rule["resource"]["type"],
            rule["resource"].get("name", "kafka-cluster"),
            rule["resource"].get("patternType", "literal"),
            operation,
        )
        for rule in rules
        for operation in rule["operations"]
    }
    patterns = {"literal": "literal", "prefixed": "prefix"}
    assert got == {
        (acl.resource_type.lower(), acl.resource_name, patterns[acl.pattern], acl.operation)
        for acl in least_acls(Role.SERVICE, "User:CN=rlm", Topics(prefix="or"))
    }


async def test_wrong_use_is_one_line(tmp_path: Path) -> None:
    rows: list[tuple[tuple[str, ...], str]] = [
        (("--principal", "rlm"), "User:"),
        (("--principal", "User:"), "User:"),
        (("--principal", RLM, "--topics", "a,,b"), "--topics"),
        (("--principal", RLM, "--topics", "a", "--prefix", "b"), "give one of them"),
        (("--principal", RLM, "--bootstrap", "h:1"), "go with --check"),
        (("--principal", RLM, "--check"), "--config FILE"),
        (("--principal", "User:Rlm", "--format", "strimzi"), "KafkaUser"),
        (("--principal", RLM, "--client-principals", "alice"), "must begin with User:"),
        (
            ("--principal", RLM, "--client-principals", "User:a", "--format", "strimzi"),
            "no right on principals",
        ),
    ]
    for arguments, word in rows:
        assert_one_line(await rlm("acls", *arguments), word, status=2)
    path = tmp_path / "rlm.yaml"
    path.write_text("node.id: 1\n")
    done = await rlm("acls", "--principal", RLM, "--check", "--config", str(path))
    assert_one_line(done, "kafka.bootstrap.servers", status=2)


@pytest.mark.parametrize("role", list(Role))
async def test_each_acl_that_is_missing_is_named_alone(role: Role) -> None:
    needed = least_acls(role, RLM, Topics(names=("orders",)), EVERY_CASE)
    command = ("--role", role.value, "--topics", "orders", "--share-groups", "--api-acls")
    async with FakeBroker().running() as broker:
        Authorized(broker, needed)
        done = await checked(broker, *command)
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        assert done.stdout == f"{RLM} has all ACLs that the role {role.value} needs\n"
        for lost in needed:
            if lost.operation in ("Describe", "DescribeConfigs") and _is_implied(lost, needed):
                continue
            Authorized(broker, [one for one in needed if one != lost])
            done = await checked(broker, *command)
            assert done.exit_code == 1
            (line,) = [one for one in done.stdout.splitlines() if one.startswith("missing")]
            assert line.startswith(f"missing ACL: {lost}: not allowed. ")
            assert f"--operation {lost.operation} " in done.stdout.splitlines()[-1]


def _is_implied(lost: Acl, needed: Iterable[Acl]) -> bool:
    implies = {"Describe": {"Read", "Write", "Delete"}, "DescribeConfigs": {"AlterConfigs"}}
    return any(
        one.operation in implies[lost.operation]
        and (one.resource_type, one.resource_name) == (lost.resource_type, lost.resource_name)
        for one in needed
    )


async def test_a_denial_is_named_and_no_command_can_add_what_it_denies() -> None:
    needed = least_acls(Role.SPARK, RLM, Topics())
    everybody = Acl(
        resource_type="Topic",
        resource_name="or",
        operation="Read",
        principal="User:*",
        pattern="prefixed",
    )
    async with FakeBroker().running() as broker:
        Authorized(broker, needed, denials=[everybody])
        done = await checked(broker, "--role", "spark")
    assert done.exit_code == 1
    assert "denied Read on Topic:prefix or to User:* from host *" in done.stdout
    assert "kafka-acls.sh" not in done.stdout


async def test_create_is_not_missing_once_both_topics_exist() -> None:
    needed = least_acls(Role.SERVICE, RLM, Topics())
    async with FakeBroker().running() as broker:
        authorized = Authorized(broker, [one for one in needed if one.operation != "Create"])
        done = await checked(broker)
        assert done.exit_code == 1
        for topic in (LEDGER_TOPIC, SETTINGS_TOPIC):
            assert f"operation Create, resource Topic:{topic}" in done.stdout
        authorized.topic_error = 0
        assert (await checked(broker)).exit_code == 0


async def test_a_cluster_without_authorizer_lacks_nothing() -> None:
    async with FakeBroker().running() as broker:
        broker.on(DESCRIBE_ACLS, {"error_code": 54, "error_message": "none", "resources": []})
        done = await checked(broker)
    assert done.exit_code == 0
    assert "no authorizer" in done.stdout


async def test_a_principal_that_may_not_ask_gets_one_line(tmp_path: Path) -> None:
    async with FakeBroker().running() as broker:
        broker.on(DESCRIBE_ACLS, {"error_code": 31, "error_message": "no", "resources": []})
        path = tmp_path / "rlm.yaml"
        path.write_text(f"kafka.bootstrap.servers: ['127.0.0.1:1', '{broker.address}']\n")
        done = await rlm("acls", "--principal", RLM, "--check", "--config", str(path))
        assert_one_line(done, "own principal may not ask", "operation Describe", status=2)
    assert_one_line(await checked(broker), "127.0.0.1", status=1)
