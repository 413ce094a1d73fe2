"""The principals file: what it may hold, what is said of what it may not, and its renewal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from kip405.errors import Invalid
from rlm.api.principals import PrincipalsFile, principals_of, read_principals, token_hash
from rlm.plans.api_rights import ApiRight, Need
from rsm_plugins.threads import Threads
from tests.builders.clock import ManualClock
from tests.builders.threads import some_threads

HASH = token_hash("secret")
ETL = {"User:etl": {"tokens": [HASH], "topics": {"orders": ["read"]}}}


@pytest.fixture
def threads() -> Iterator[Threads]:
    with some_threads(1) as found:
        yield found


def test_a_principal_is_found_by_token_and_certificate() -> None:
    found = principals_of(
        {
            "User:etl": {
                "tokens": [HASH.upper(), token_hash("next")],
                "certificates": ["CN=etl,O=example"],
                "topics": {"orders": ["read"], "*": ["operate"]},
                "prefixes": {"team-": ["admin", "read"]},
            }
        }
    )
    assert found.of_token("secret") == found.of_token("next") == "User:etl"
    assert found.of_token(HASH) is None and found.of_token("") is None
    assert found.of_certificate("CN=etl,O=example") == "User:etl"
    assert found.of_certificate("CN=etl") is None
    rights = found.rights["User:etl"]
    for topic, given in (
        ("orders", "describe read operate"),
        ("team-a", "describe read operate configure delete"),
        ("others", "describe operate"),
        ("*", "describe operate"),
    ):
        has = {one for one in ApiRight if not rights.lacks([Need(right=one, topic=topic)])}
        assert {one.value for one in has} == set(given.split()), topic


def entry(**changes: Any) -> dict[str, Any]:
    return {"etl": {"tokens": [HASH], **changes}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"etl": None}, "etl: must have tokens or certificates"),
        ({"etl": {"topics": {"a": ["read"]}}}, "etl: has neither tokens nor certificates"),
        ({"": {"tokens": [HASH]}}, "'' is no principal"),
        ({"a\nb": {"tokens": [HASH]}}, "is no principal"),
        ({"User:Jürgen": {"tokens": [HASH]}}, "no principal: a name has 1 to 256 printable ASCII"),
        ({"a" * 257: {"tokens": [HASH]}}, "give it another name"),
        (entry(token="x"), "etl: token: unknown; there are tokens, certificates, topics, prefix"),
        (entry(tokens=HASH), "etl: tokens: must be a list of texts"),
        (entry(tokens=[7]), "etl: tokens: must be a list of texts"),
        (entry(tokens=["secret"]), "etl: tokens: must be SHA-256 hashes of tokens, 64 hex"),
        (entry(tokens=[token_hash("")]), "etl: tokens: one is the hash of no token"),
        (entry(tokens=["x" * 64]), "etl: tokens: must be SHA-256 hashes"),
        (entry(topics=["orders"]), "etl: topics: must be rights by name"),
        (entry(topics={"orders": []}), "etl: topics: orders: has no rights; there are read, op"),
        (entry(topics={"orders": "read"}), "etl: topics: orders: must be a list of texts"),
        (entry(topics={"orders": ["write"]}), "etl: 'write' is no right; there are read, operate"),
        (entry(topics={"or*": ["read"]}), "etl: topics: 'or*' is no topic name"),
        (entry(topics={7: ["read"]}), "etl: topics: 7 is no text: put it in quotes"),
        (entry(prefixes={"*": ["read"]}), "etl: prefixes: '*' is no topic name"),
        (entry(prefixes={"": ["read"]}), "etl: prefixes: '' is no topic name"),
        (
            {"a": {"tokens": [HASH]}, "b": {"tokens": [HASH]}},
            "b: tokens: one of them is of a too",
        ),
        (
            {"a": {"certificates": ["CN=x"]}, "b": {"certificates": ["CN=x"]}},
            "b: certificates: one of them is of a too",
        ),
        ({str(n): {} for n in range(1_001)}, "it has 1001 principals; there may be 1000"),
    ],
)
def test_what_is_refused(content: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid) as caught:
        principals_of(content)
    assert str(caught.value).startswith(why) or why in str(caught.value)


def test_a_refusal_does_not_show_what_may_be_a_token() -> None:
    with pytest.raises(Invalid) as caught:
        principals_of(entry(tokens=["a-token-by-mistake"]))
    assert "a-token-by-mistake" not in str(caught.value)


def test_where_the_brokers_decide_the_file_only_names_principals() -> None:
    found = principals_of({"etl": {"tokens": [HASH]}}, has_rights=False)
    assert found.of_token("secret") == "etl"
    assert found.of_certificate("CN=x,O=y") == "User:CN=x,O=y"
    with pytest.raises(Invalid, match=r"api\.authorization is kafka"):
        principals_of(ETL, has_rights=False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "must hold lines like `User:etl: {tokens: "),
        ("a: [", "is not YAML"),
        ("a: {tokens: [], tokens: []}", "tokens: given twice"),
        ("a: 1", "a: must have tokens or certificates"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "principals.yaml"
    path.write_text(content)
    with pytest.raises(Invalid) as caught:
        read_principals(path)
    assert str(caught.value).startswith("api.principals.file: ")
    assert why in str(caught.value)
    with pytest.raises(Invalid, match=r"api\.principals\.file: .*nowhere cannot be read"):
        read_principals(tmp_path / "nowhere")


async def test_a_changed_file_is_taken_and_a_bad_one_leaves_the_former(
    tmp_path: Path, threads: Threads
) -> None:
    path = tmp_path / "principals.yaml"
    path.write_text(yaml.safe_dump(ETL))
    file = PrincipalsFile(path, ManualClock(), threads=threads, has_rights=True)
    assert file().of_token("secret") == "User:etl"
    with structlog.testing.capture_logs() as logs:
        path.write_text("User:etl: {tokens: [half a")
        await file.refresh()
        assert file().of_token("secret") == "User:etl"
        for text in ("{{ principals }}: {}", "User:etl: {tokens: [2026-13-45]}"):
            path.write_text(text)
            await file.refresh()
            assert file().of_token("secret") == "User:etl"
        path.unlink()
        await file.refresh()
        assert file().of_token("secret") == "User:etl"
        path.write_text(yaml.safe_dump({"other": {"tokens": [HASH]}}))
        await file.refresh()
        assert file().of_token("secret") == "other"
    assert [row["event"] for row in logs] == ["renewal_failed"] * 4 + ["renewed"]
    assert "is not YAML" in logs[0]["error"]
    assert "render it first" in logs[1]["error"] and "put texts in quotes" in logs[2]["error"]
