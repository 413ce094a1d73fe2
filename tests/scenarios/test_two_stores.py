"""Two topics in two buckets and one in a third store; rules change, and nothing is stranded (H11).

The service's own YAML is rewritten and the service restarted, as an operator does it. The third
store is a directory in the short ring and HDFS in the long one.
"""

import json
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.eventually import comes_to, json_comes_to
from tests.store_servers import S3Server
from tests.store_servers_hdfs import HdfsServer

pytestmark = pytest.mark.integration

_LAYOUT = "storage.layout"
_OF_A_STORE = ("plugin", "rsm.config.", "stores", "storage.endpoint.", _LAYOUT)
_MIB = 3


class Site:
    """One broker, two buckets and a third store; `names` are those of the stores in that order."""

    def __init__(self, cluster: Cluster, stores: dict[str, dict[str, Any]]) -> None:
        self.cluster = cluster
        layout = {key: one for key, one in self._config().items() if key == _LAYOUT}
        self.stores = {name: {**rows, **layout} for name, rows in stores.items()}
        self.names = tuple(stores)

    def _config(self) -> dict[str, Any]:
        path = self.cluster.sandbox.layout.rlm_config(1)
        return dict(yaml.safe_load(path.read_text()))

    @property
    def http(self) -> str:
        return str(self._config()["http.listen"])

    def configure(self, stores: Iterable[str], *rules: dict[str, Any], wait: bool = True) -> None:
        """Restart the service with these stores and rules instead of those it had."""
        kept = {key: one for key, one in self._config().items() if not key.startswith(_OF_A_STORE)}
        named = {name: self.stores[name] for name in stores}
        if named:
            kept |= {"stores": named, "storage.endpoint.rules": list(rules)}
        kept["plugin.call.timeout.ms"] = 10_000
        self.cluster.sandbox.kill("rlm:1")
        self.cluster.sandbox.layout.rlm_config(1).write_text(yaml.safe_dump(kept, sort_keys=False))
        self.cluster.sandbox.start("rlm:1", wait=wait)

    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.http}/healthz", timeout=120) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=120) as answer:
            return str(answer.read().decode())

    def service(self) -> dict[str, Any]:
        [found] = self.cluster.rlm_json("status")["services"]
        return dict(found)

    def stores_of(self, topic: str) -> list[str]:
        """Names of the stores of the topic's segments, in the order of offsets, each run once."""
        by_id = {row["store_id"]: row["name"] for row in self.service()["stores"]}
        rows = self.cluster.rlm_json("segments", topic)["segments"]
        names = [
            by_id[row["store_id"]] for row in sorted(rows, key=lambda row: row["start_offset"])
        ]
        return [name for name, before in zip(names, [None, *names], strict=False) if name != before]


def _directory(path: Path) -> dict[str, Any]:
    path.mkdir()
    return {"plugin": "local", "rsm.config.root": str(path)}


def _hdfs(server: HdfsServer) -> dict[str, Any]:
    return {
        "plugin": "hdfs",
        "rsm.config.hdfs.url": server.url,
        "rsm.config.root": "/",
        "rsm.config.prefix": fresh("two-stores"),
    }


@pytest.fixture(
    params=["directory", pytest.param("hdfs", marks=pytest.mark.long)], ids=lambda name: name
)
def site(
    request: pytest.FixtureRequest,
    sandbox_factory: SandboxFactory,
    s3_server: S3Server,
    tmp_path: Path,
) -> Iterator[Site]:
    if request.param == "hdfs":
        third = _hdfs(request.getfixturevalue("hdfs_server"))
    else:
        third = _directory(tmp_path / "third")
    stores = {
        "hot": {"plugin": "s3", **s3_server.settings(s3_server.bucket())},
        "warm": {
            "plugin": "s3",
            **s3_server.settings(s3_server.bucket()),
            "rsm.config.prefix": "kafka/prod",
            "rsm.config.prefix.entropy.bits": 5,
        },
        "cold": third,
    }
    with Cluster(sandbox_factory()) as cluster:
        yield Site(cluster, stores)


def _rules(topics: dict[str, str], stores: tuple[str, str, str]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"topics": f"{stem}-.*", "store": store} for stem, store in zip(topics, stores, strict=True)
    )


def _more(cluster: Cluster, topics: Iterable[str], rows: dict[str, list[Row]]) -> None:
    """Fill every topic, and wait until each is copied, and trimmed beyond where it began before."""
    before = {topic: cluster.log_start(topic) for topic in topics}
    for topic in before:
        rows[topic] = rows.get(topic, []) + cluster.fill(
            topic, mib=_MIB, first=len(rows.get(topic, []))
        )
    for topic, start in before.items():
        cluster.wait_trimmed(topic, beyond=start)
        cluster.wait_copied(topic)


def test_rules_change_and_everything_is_read_back(site: Site) -> None:
    cluster = site.cluster
    topics = {stem: fresh(stem) for stem in ("audit", "bids", "clicks")}
    rows: dict[str, list[Row]] = {}
    for topic in topics.values():
        cluster.create_topic(topic)

    rows[topics["audit"]] = _without_a_store(site, topics["audit"])

    site.configure(site.names, *_rules(topics, ("hot", "warm", "cold")))
    for topic in topics.values():
        cluster.enable(topic)
    _more(cluster, topics.values(), rows)
    assert [site.stores_of(topic) for topic in topics.values()] == [["hot"], ["warm"], ["cold"]]

    site.configure(site.names, *_rules(topics, ("warm", "cold", "hot")))
    _more(cluster, topics.values(), rows)
    assert [site.stores_of(topic) for topic in topics.values()] == [
        ["hot", "warm"],
        ["warm", "cold"],
        ["cold", "hot"],
    ]
    for topic in topics.values():
        assert_same(cluster.read_all(topic), rows[topic])
    _is_well(site)

    _a_store_is_no_longer_named(site, topics, rows)

    site.configure(site.names, *_rules(topics, ("warm", "cold", "hot")))
    _more(cluster, topics.values(), rows)
    for topic in topics.values():
        assert_same(cluster.read_all(topic), rows[topic])


def _without_a_store(site: Site, topic: str) -> list[Row]:
    """A plain proxy that treats nothing as tiered; the records produced through it."""
    cluster = site.cluster
    site.configure(())
    acked = cluster.produce(topic, ((0, None, b"v%d" % number) for number in range(10)))
    assert_same(cluster.read_all(topic), acked)
    words = "no store is configured: nothing is tiered"
    health = site.health()
    assert health["ready"] is True
    assert [row["kind"] for row in health["problems"] if words in row["text"]] == ["no-store"]
    assert any(words in text for text in site.service()["problems"])
    assert "rlm_stores_configured 0.0" in site.metrics()
    refused = cluster.rlm("topics", "enable", topic, check=False)
    assert refused.returncode == 2
    assert words in refused.stderr and "plugin.address" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert words in cluster.rlm("status").stdout
    assert words in cluster.rlm("doctor", "--store").stdout
    return acked


def _is_well(site: Site) -> None:
    site.cluster.wait_for(lambda: site.health()["problems"] == [], "no problem")
    doctor = comes_to(site.cluster, ("doctor", "--store"))
    for name in site.names:
        assert f"store {name}  " in doctor.stdout
    config = str(site.cluster.sandbox.layout.rlm_config(1))
    json_comes_to(
        site.cluster,
        ("doctor", "--store", "--config", config),
        lambda direct: [row["problem"] for row in direct["stores"]] == ["", "", ""],
    )
    assert "rlm_stores_configured 3.0" in site.metrics()


def _a_store_is_no_longer_named(
    site: Site, topics: dict[str, str], rows: dict[str, list[Row]]
) -> None:
    """What lies in it waits, with an alarm; a topic that never needed it goes on."""
    cluster = site.cluster
    site.configure(("hot", "warm"), {"topics": ".*", "store": "warm"}, wait=False)

    def alarmed() -> bool:
        done = cluster.rlm("status", check=False)
        is_reported = "is not in this service's configuration" in done.stdout
        return done.returncode == 1 and is_reported

    cluster.wait_for(alarmed, "status names the store that is missing")

    def has_segments() -> bool:
        [stranger] = [row for row in site.service()["stores"] if not row["name"]]
        return bool(stranger["segments"] > 0)

    cluster.wait_for(has_segments, "the segments of the store that is missing are counted")
    _more(cluster, [topics["audit"]], rows)
    assert_same(cluster.read_all(topics["audit"]), rows[topics["audit"]])
    _waits(lambda: cluster.read_all(topics["clicks"], timeout_s=5))
    before = cluster.log_start(topics["bids"])
    rows[topics["bids"]] += cluster.fill(topics["bids"], mib=_MIB, first=len(rows[topics["bids"]]))
    cluster.wait_copied(topics["bids"])
    # Its newest trimmed segments are in warm, those to be trimmed next partly in cold.
    assert cluster.log_start(topics["bids"]) >= before


def _waits(read: Callable[[], list[Row]]) -> None:
    """No reset, no end of partition: the consumer receives nothing until it gives up."""
    try:
        found = read()
    except AssertionError:
        return
    raise AssertionError(f"{len(found)} records came from a store that nobody serves")
