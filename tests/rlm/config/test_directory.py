"""A directory of settings: which file is read, and files of lines key=value."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kip405.errors import Invalid
from rlm.config.check import NOTE, check_file
from rlm.config.directory import Chosen, chosen_file, read_settings
from rlm.config.loader import from_mapping

A, B = "4L6g3nShT-eMCtK--X86sw", "BBBBBBBBQ0CtK--X86swAA"
BY_ID = {"RLM_CLUSTER_ID": A}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "rlm.d"
    found.mkdir()
    return found


def put(folder: Path, *names: str, text: str = "log.level: debug\n") -> None:
    for name in names:
        (folder / name).write_text(text)


def test_a_file_is_itself(folder: Path) -> None:
    put(folder, f"{B}.yaml")
    path = folder / f"{B}.yaml"
    assert chosen_file(path, BY_ID) == Chosen(file=path)
    assert read_settings(path, BY_ID) == {"log.level": "debug"}


def test_the_file_of_the_cluster_is_chosen(folder: Path) -> None:
    put(folder, f"{A}.yaml", f"{B}.properties", "notes.txt", f".{A}.yaml.swp")
    assert read_settings(folder, BY_ID) == {"log.level": "debug", "cluster.id": A}
    chosen = chosen_file(folder, {"RLM_CLUSTER_ID": B})
    assert (chosen.file.name, chosen.cluster_id) == (f"{B}.properties", B)


def test_the_provider_names_the_cluster(folder: Path) -> None:
    put(folder, f"{A}.yaml", f"{B}.yaml")
    environment = {"RLM_ENVIRONMENT_PROVIDER_CLASS": "variables", "CLUSTER_ID": B}
    chosen = chosen_file(folder, environment)
    assert (chosen.file.name, chosen.known_by) == (
        f"{B}.yaml",
        "RLM_ENVIRONMENT_PROVIDER_CLASS",
    )
    assert chosen_file(folder, {**environment, **BY_ID}).cluster_id == A
    with pytest.raises(Invalid, match="is none of"):
        chosen_file(folder, {"RLM_ENVIRONMENT_PROVIDER_CLASS": "nobody"})


@pytest.mark.parametrize("by", ["RLM_LOG_DIRS", "RLM_BROKER_SERVER_PROPERTIES"])
def test_the_brokers_files_name_the_cluster(folder: Path, tmp_path: Path, by: str) -> None:
    put(folder, f"{A}.yaml", f"{B}.yaml")
    logs = [tmp_path / "one", tmp_path / "two"]
    for one in logs:
        one.mkdir()
        (one / "meta.properties").write_text(f"version=1\ncluster.id={B}\nnode.id=1\n")
    listed = ",".join(map(str, logs))
    server = tmp_path / "server.properties"
    server.write_text(f"node.id=1\nlog.dirs={listed}\n")
    environment = {by: listed if by == "RLM_LOG_DIRS" else str(server)}
    assert chosen_file(folder, environment) == Chosen(
        file=folder / f"{B}.yaml", cluster_id=B, known_by=by
    )
    (logs[0] / "meta.properties").write_text(f"version=1\ncluster.id={A}\nnode.id=1\n")
    with pytest.raises(Invalid, match=f"{by}: the log directories are of clusters"):
        chosen_file(folder, environment)


def test_the_only_file_is_read_where_no_id_is_known(folder: Path) -> None:
    put(folder, "our.yaml")
    assert read_settings(folder, {}) == {"log.level": "debug"}
    put(folder, f"{A}.yaml")
    with pytest.raises(Invalid) as refused:
        read_settings(folder, {})
    assert f"has {A}.yaml, our.yaml, and it is not known which cluster" in str(refused.value)
    assert "set RLM_CLUSTER_ID, RLM_ENVIRONMENT_PROVIDER_CLASS or" in str(refused.value)


def test_no_file_of_another_cluster_is_read(folder: Path) -> None:
    put(folder, f"{B}.yaml")
    with pytest.raises(Invalid) as refused:
        read_settings(folder, BY_ID)
    assert str(refused.value).endswith(f"that RLM_CLUSTER_ID names; it has {B}.yaml")
    put(folder, f"{A}.yaml", text=f"cluster.id: {B}\n")
    with pytest.raises(Invalid, match=f"cluster.id: is {B} in .*, the file of another cluster"):
        read_settings(folder, BY_ID)


def test_two_files_of_one_cluster_and_none_at_all_are_refused(folder: Path) -> None:
    with pytest.raises(Invalid, match=r"has no file CLUSTER\.properties or CLUSTER\.yaml"):
        read_settings(folder, {})
    put(folder, f"{A}.yaml", f"{A}.properties")
    with pytest.raises(Invalid, match=f"two files of cluster {A}: {A}.properties, {A}.yaml"):
        read_settings(folder, BY_ID)


def test_a_properties_file_has_the_same_keys(given: dict[str, Any], tmp_path: Path) -> None:
    content = given | {
        "copy.deadline.ms": 1000,
        "console.enabled": False,
        "kafka.bootstrap.servers": ["b0:1", "b1:2"],
        "log.dirs": ["/data/a", "/data/b"],
        "stores": {"s": {"plugin": "local", "rsm.config.root": "/store"}},
        "storage.endpoint.rules": [{"topics": "a.*", "store": "s"}],
    }
    written = tmp_path / "rlm.yaml"
    written.write_text(yaml.safe_dump(content))
    lines = tmp_path / "rlm.properties"
    lines.write_text(
        "# as Kafka's\n"
        + "".join(f"{key}={value}\n" for key, value in given.items() if key != "log.dirs")
        + "copy.deadline.ms=1000\nconsole.enabled = false\nkafka.bootstrap.servers=b0:1,b1:2\n"
        "log.dirs=/data/a,/data/b\nstores={s: {plugin: local, rsm.config.root: /store}}\n"
        'storage.endpoint.rules=[{topics: "a.*", \\\n   store: s}]\naudit.log.file=\n'
    )
    of_lines = from_mapping(read_settings(lines, {}), {})
    assert of_lines == from_mapping(read_settings(written, {}), {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("copy.deadline.ms=soon", "copy.deadline.ms: must be a whole number of at least 1"),
        ("log.levl=info", "log.levl: unknown setting; did you mean log.level?"),
    ],
)
def test_a_wrong_line_is_refused(folder: Path, line: str, said: str) -> None:
    path = folder / f"{A}.properties"
    path.write_text(line)
    with pytest.raises(Invalid, match=said):
        from_mapping(read_settings(path, {}), {})


def test_config_check_says_which_file_it_is(
    given: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    del given["cluster.id"]
    put(folder, f"{A}.yaml", text=yaml.safe_dump(given))
    put(folder, f"{B}.yaml")
    checked = check_file(folder, "broker", BY_ID)
    assert checked.config is not None and checked.config.cluster_id == A
    assert (checked.findings[0].level, checked.findings[0].text) == (
        NOTE,
        f"{folder}/{A}.yaml: chosen in {folder}: cluster {A}, by RLM_CLUSTER_ID",
    )
