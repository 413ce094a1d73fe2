"""What README.md and the pages say of settings, messages, permissions and calls is so."""

import ast
import json
import re

import pytest
import yaml

from kip405.settings import Table
from rlm.api.principals import KAFKA_USER, principals_of
from rlm.broker.versions import OLDEST_KAFKA
from rlm.config.offload import OFFLOAD_ROWS, read_offload_rules
from rlm.config.service import settings
from rlm.config.stores import RULE_ROWS, STORE_ROWS, is_store_key, read_rules, read_stores
from rsm_plugins.layout.keys import IDENTITY_NAME
from rsm_plugins.process.config import SETTINGS, settings_of
from rsm_plugins.s3.rights import PolicyScope, StoreRole, policy
from rsm_plugins.store_kinds import KIND_NAMES, kind_settings
from rsm_plugins.v1 import identity_pb2, storage_pb2
from tests.docs.site import hand_written
from tests.project.tree import ROOT, parse, show, sources

NAMES = tuple(name for name in hand_written() if name.startswith(("README", "docs/")))
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
EXAMPLES = [
    pytest.param(block, id=f"{name}-{number}")
    for name, text in PAGES.items()
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
]
KIND_ROWS = Table(*(row for name in KIND_NAMES for row in kind_settings(name)))
OTHER_KEYS = {row.key for row in (*settings().values(), *STORE_ROWS, *RULE_ROWS, *OFFLOAD_ROWS)}
OTHER_KEYS |= {row.key for row in SETTINGS}
OTHERS_SETTINGS = {  # of Kafka's brokers and consumers, and of gRPC
    "broker.session.timeout.ms",
    "fetch.max.wait.ms",
    "grpc.http2.min_ping_interval_without_data_ms",
    "grpc.keepalive_permit_without_calls",
}
_SETTING = re.compile(
    r"`((?:rsm\.config|access|api|broker|copy|fetch|grpc|http|plugin|problem|proxy|remote|shared"
    r"|storage|sweep|tls|trim)\.[\w.-]*[\w*])[`:]"
)


@pytest.mark.parametrize("block", EXAMPLES)
def test_examples_are_accepted_unchanged(block: str) -> None:
    content = yaml.safe_load(block)
    if "listen" in content:
        settings_of(content)
        return
    if any(key.startswith(KAFKA_USER) for key in content):
        principals_of(content)
        return
    known = {row.key for row in settings().values()}
    assert [key for key in content if key not in known and not is_store_key(key)] == []
    stores = read_stores(content)
    read_rules(content.get("storage.endpoint.rules", []), stores)
    read_offload_rules(content.get("offload.rules", []))


@pytest.mark.parametrize("name", NAMES)
def test_settings_named_in_the_text_exist(name: str) -> None:
    named = {key for key in _SETTING.findall(PAGES[name]) if not key.endswith("*")}
    named -= OTHERS_SETTINGS
    unknown = {key for key in named if key not in OTHER_KEYS and KIND_ROWS.row(key) is None}
    assert unknown == set()


def _texts(*folders: str) -> str:
    """Every text in the code of these folders, as it is put together."""
    found = (
        ast.unparse(node)
        for path in sources(with_tests=False)
        if show(path).startswith(folders)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.JoinedStr | ast.Constant)
    )
    joined = "\n".join(found)
    return joined.replace("{IDENTITY_NAME}", IDENTITY_NAME).replace("{OLDEST_KAFKA}", OLDEST_KAFKA)


def _explained(page: str, head: str) -> set[str]:
    """The pieces of messages in the first column of the page's tables with this head."""
    tables = re.findall(rf"^\| {head} \|.*?\n\n", PAGES[page], re.DOTALL | re.MULTILINE)
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()[2:] if row]
    messages = [words for cell in cells for words in re.findall(r"`([^`]+)`", cell)]
    return {piece.strip() for words in messages for piece in words.split("...")} - {""}


def test_messages_explained_are_in_the_code() -> None:
    explained = _explained("docs/stores.md", "in the message")
    known = _texts("rsm_plugins/", "rlm/stores/")
    assert len(explained) > 20
    assert {words for words in explained if words not in known} == set()


def test_refusals_explained_are_in_the_code() -> None:
    explained = _explained("docs/limits.md", "it says")
    known = _texts("rlm/topics/", "rlm/service/", "rlm/broker/", "rlm/plans/")
    assert len(explained) > 15
    assert {words for words in explained if words not in known} == set()


def test_the_policy_is_that_of_the_table() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGES["docs/stores.md"], re.DOTALL)
    scope = PolicyScope(bucket="kafka-archive", prefix="production")
    assert json.loads(block) == policy(StoreRole.SERVICE, scope)


def test_the_page_for_plugins_has_every_call_and_capability() -> None:
    page = PAGES["docs/writing-a-plugin.md"]
    services = (
        identity_pb2.DESCRIPTOR.services_by_name["Identity"],
        storage_pb2.DESCRIPTOR.services_by_name["Storage"],
    )
    calls = {method.name for service in services for method in service.methods}
    capabilities = {
        name.removeprefix("CAPABILITY_")
        for name, number in identity_pb2.Capability.items()
        if number != identity_pb2.CAPABILITY_UNSPECIFIED
    }
    section = page.partition("## What it must do")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == calls
    assert set(re.findall(r"^\| ([A-Z_]+) \|", page.partition("## Capabilities")[2], re.M)) == (
        capabilities
    )
