"""Settings of the HDFS kind and what of them reaches the client library."""

from pathlib import Path

import pytest

from kip405.errors import Invalid
from rsm_plugins.hdfs.connection import client_arguments, make_client
from rsm_plugins.hdfs.manager import KIND
from rsm_plugins.hdfs.settings import HdfsSettings, read_site, settings_of

NS = "rsm.config.hdfs."
HA_SITE = """<?xml version="1.0"?><configuration>
<property><name>dfs.nameservices</name><value>ns</value></property>
<property><name>dfs.ha.namenodes.ns</name><value>a, b,c</value></property>
<property><name>dfs.namenode.rpc-address.ns.a</name><value>127.0.0.1:1</value></property>
<property><name>dfs.namenode.rpc-address.ns.b</name><value>127.0.0.1:2</value></property>
<property><name>dfs.namenode.rpc-address.ns.c</name><value>${host}:3</value></property>
<property><name>host</name><value> 127.0.0.1 </value></property>
</configuration>"""


def settings(environ: dict[str, str] | None = None, /, **more: object) -> HdfsSettings:
    """As the plugin makes them; `more` below rsm.config.hdfs., with __ for dots."""
    content = {
        "rsm.config.root": "/rlm",
        **{f"{NS}{key.replace('__', '.')}": value for key, value in more.items()},
    }
    KIND.settings.refuse_unknown(content)
    return settings_of(KIND.settings.values(content), environ or {})


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "hdfs-site.xml"
    path.write_text(HA_SITE)
    return path


def ha(site: Path, **more: object) -> HdfsSettings:
    return settings(url="hdfs://ns", **{"hdfs-site__path": str(site), **more})


def test_the_least_settings() -> None:
    made = settings(url="hdfs://nn.example:8020/")
    assert (made.url, made.root, made.prefix) == ("hdfs://nn.example:8020", "/rlm", "")
    assert made.namenodes == ()
    assert made.client_conf() == {
        "dfs.client.socket-timeout": "10000",
        "dfs.client.failover.max.attempts": "0",
    }


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nn:8020",
        "http://nn:8020",
        "hdfs:///x",
        "hdfs://nn:1/x",
        "hdfs://u@nn:1",
        5,
        "viewfs://x",
    ],
)
def test_urls_that_name_no_file_system(url: object) -> None:
    with pytest.raises(Invalid, match=r"rsm.config.hdfs.url"):
        settings(url=url)


def test_an_unknown_name_service_is_refused() -> None:
    with pytest.raises(Invalid, match=r"dfs.ha.namenodes.other is not in .*hdfs-site.path"):
        settings(url="hdfs://other")


@pytest.mark.parametrize("root", ["", "rlm", "/a/../b", "//x"])
def test_roots_that_are_no_path(root: str) -> None:
    with pytest.raises(Invalid, match=r"rsm.config.root"):
        KIND.settings.values({"rsm.config.root": root})


def test_name_nodes_of_the_site_file(site: Path) -> None:
    made = ha(site)
    assert made.namenodes == ("a", "b", "c")
    assert read_site(site)["dfs.namenode.rpc-address.ns.c"] == "127.0.0.1:3"
    assert made.client_conf()["dfs.client.failover.max.attempts"] == "2"


def test_a_name_service_is_called_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "hdfs-site.xml"
    path.write_text(HA_SITE.replace(".ns", ".BigData-NS").replace(">ns<", ">BigData-NS<"))
    made = settings(url="hdfs://BigData-NS", **{"hdfs-site__path": str(path)})
    assert made.namenodes == ("a", "b", "c")
    assert make_client(made, first=0) is not None


def test_a_fresh_client_asks_the_next_name_node_first(site: Path) -> None:
    orders = [ha(site).client_conf(first)["dfs.ha.namenodes.ns"] for first in range(4)]
    assert orders == ["a,b,c", "b,c,a", "c,a,b", "a,b,c"]


def test_the_library_never_waits_between_name_nodes(site: Path) -> None:
    """Its asyncio client panics where it does; whatever the configuration says."""
    made = ha(site, **{"conf__dfs.client.failover.max.attempts": 15})
    assert made.client_conf()["dfs.client.failover.max.attempts"] == "2"


def test_lines_of_ones_own_win_over_the_files(site: Path) -> None:
    more = {"conf__dfs.replication": 2, "conf__dfs.x": True, "conf__dfs.ha.namenodes.ns": "c,a"}
    made = ha(site, **more)
    assert made.namenodes == ("c", "a")
    assert made.client_conf()["dfs.x"] == "true"
    assert made.number("dfs.replication") == 2


@pytest.mark.parametrize(
    ("text", "number"), [("128m", 128 << 20), ("1G", 1 << 30), ("7", 7), ("", None)]
)
def test_numbers_with_hadoops_suffixes(text: str, number: int | None) -> None:
    made = settings(url="hdfs://nn:1", **{"conf__dfs.blocksize": text})
    assert made.number("dfs.blocksize") == number


def test_the_file_system_of_core_site_and_of_hadoop_conf_dir(tmp_path: Path) -> None:
    core = tmp_path / "core-site.xml"
    core.write_text(
        "<configuration><property><name>fs.defaultFS</name>"
        "<value>hdfs://nn:9000</value></property></configuration>"
    )
    assert settings(**{"core-site__path": str(core)}).url == "hdfs://nn:9000"
    assert settings({"HADOOP_CONF_DIR": str(tmp_path)}).url == "hdfs://nn:9000"
    with pytest.raises(Invalid, match=r"rsm.config.hdfs.url is missing"):
        settings()


def test_a_site_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "hdfs-site.xml"
    for content in (None, "<configuration>"):
        if content is not None:
            bad.write_text(content)
        with pytest.raises(Invalid, match=r"hdfs-site.xml"):
            ha(bad)


def test_kerberos_reaches_the_client_library(site: Path) -> None:
    more = {
        "auth__kerberos__principal": "rlm/host@REALM",
        "auth__kerberos__keytab": "/etc/rlm.keytab",
    }
    arguments = client_arguments(ha(site, **more))
    assert arguments["kerberos_principal"] == "rlm/host@REALM"
    assert arguments["kerberos_keytab"] == "/etc/rlm.keytab"
    assert arguments["config"]["hadoop.security.authentication"] == "kerberos"
    cached = {
        "auth__kerberos__principal": "rlm@REALM",
        "auth__kerberos__cache": "FILE:/run/krb5/cc",
    }
    assert client_arguments(ha(site, **cached))["kerberos_cache"] == "FILE:/run/krb5/cc"


@pytest.mark.parametrize("name", ["principal", "keytab", "cache"])
def test_half_of_kerberos_is_refused(site: Path, name: str) -> None:
    with pytest.raises(Invalid, match=r"rsm.config.hdfs.auth.kerberos.principal"):
        ha(site, **{f"auth__kerberos__{name}": "/x"})


def test_what_the_library_refuses_is_invalid(site: Path) -> None:
    made = ha(site, **{"conf__dfs.namenode.rpc-address.ns.a": "127.0.0.1:1"})
    make_client(made, first=0)
    bare = HdfsSettings(url="hdfs://unknown", root="/")
    with pytest.raises(Invalid, match="no HDFS client for hdfs://unknown"):
        make_client(bare, first=0)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(Invalid, match=r"did you mean rsm.config.hdfs.url"):
        settings(urk="x")
