"""What an operator's command may not read is named before anything is opened."""

from collections.abc import Collection
from pathlib import Path

import pytest

from kafka_protocol.apis import DESCRIBE_CLUSTER, METADATA
from kip405.acls import OUR_PRINCIPAL, Acl, MissingAcls
from rlm.plans.rights import Role, Topics, When, least_acls
from rlm.service.store_command import StoreCommand, run_store_command
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.clock import ManualClock
from tests.builders.fake_broker import FakeBroker
from tests.builders.rights import CLUSTER, topics_with_rights
from tests.builders.service import broker_config

NEEDED = least_acls(Role.OPERATOR, OUR_PRINCIPAL, Topics(), {When.ALWAYS})
OF_TOPICS = [acl for acl in NEEDED if acl.resource_type == "Topic"]


async def act(command: StoreCommand) -> None:
    raise AssertionError("it was begun")


async def refused(path: Path, without: Collection[Acl]) -> MissingAcls:
    async with FakeBroker().running() as broker:
        broker.on(DESCRIBE_CLUSTER, CLUSTER | {"cluster_id": "ours"})
        broker.on(METADATA, topics_with_rights((LEDGER_TOPIC, SETTINGS_TOPIC), without))
        config = broker_config(path, {}, broker.address)
        with pytest.raises(MissingAcls) as error:
            await run_store_command(config, ManualClock(), act, without=())
        return error.value


@pytest.mark.parametrize("acl", OF_TOPICS, ids=str)
async def test_h40_each_right_of_an_operator_taken_away_is_named(acl: Acl, tmp_path: Path) -> None:
    error = await refused(tmp_path, [acl])
    assert len(error.acls) == 1
    assert str(error) == (
        f"nothing was read: missing ACL: principal User:ANONYMOUS, operation {acl.operation}, "
        f"resource Topic:{acl.resource_name}"
    )
