"""Configuration and commands of the sandbox's HDFS; other tests show that it runs."""

from pathlib import Path
from xml.etree import ElementTree

from rlm_sandbox.ports import PortReservation
from rlm_sandbox.store_servers import hdfs

DIST = hdfs.HdfsDist(version="3", jars=(Path("/a.jar"), Path("/b.jar")), java=Path("/java"))


def ports(*, ha: bool = False, datanodes: int = 1) -> hdfs.HdfsPorts:
    with PortReservation() as reservation:
        return hdfs.HdfsPorts.take(reservation, ha=ha, datanodes=datanodes)


def site(path: Path) -> dict[str | None, str | None]:
    lines = ElementTree.parse(path).getroot()
    return {line.findtext("name"): line.findtext("value") for line in lines}


def test_everything_is_on_loopback_and_in_the_folder(tmp_path: Path) -> None:
    taken = ports(datanodes=2)
    assert len(set(taken.all())) == 8
    config = hdfs.write_config(tmp_path, taken, {"dfs.x": "<&>"})
    found = site(config / "hdfs-site.xml")
    assert found["dfs.x"] == "<&>"
    assert found["dfs.replication"] == "2"
    for key, value in found.items():
        assert key is not None and value is not None
        if "address" in key:
            assert value.startswith("127.0.0.1:"), key
        if key.endswith(".dir"):
            assert value.startswith(tmp_path.as_uri()), key
    assert site(config / "core-site.xml")["fs.defaultFS"] == taken.url
    assert (config / "webapps" / "hdfs").is_dir()


def test_two_name_nodes_share_their_edits(tmp_path: Path) -> None:
    taken = ports(ha=True)
    found = site(hdfs.write_config(tmp_path, taken) / "hdfs-site.xml")
    assert taken.url == f"hdfs://{hdfs.NAMESERVICE}"
    assert found[f"dfs.ha.namenodes.{hdfs.NAMESERVICE}"] == "nn1,nn2"
    for number, node in enumerate(taken.namenodes, start=1):
        address = f"dfs.namenode.rpc-address.{hdfs.NAMESERVICE}.nn{number}"
        assert found[address] == f"127.0.0.1:{node.rpc}"
    command = hdfs.namenode_command(DIST, tmp_path, taken, 1)
    assert "-Ddfs.ha.namenode.id=nn2" in command
    assert "-Xmx256m" in command


def test_the_second_data_node_has_ports_and_a_folder_of_its_own(tmp_path: Path) -> None:
    taken = ports(datanodes=2)
    first, second = (hdfs.datanode_command(DIST, tmp_path, taken, at) for at in (0, 1))
    assert second[: len(first)] == first
    assert f"-Ddfs.datanode.address=127.0.0.1:{taken.others[0].data}" in second
    assert f"-Ddfs.datanode.data.dir={(tmp_path / 'data-2').as_uri()}" in second


def test_a_server_that_is_not_there_is_not_ready() -> None:
    taken = ports()
    assert not hdfs.is_ready(taken)
    assert not hdfs.namenode_answers(taken.namenodes[0])
