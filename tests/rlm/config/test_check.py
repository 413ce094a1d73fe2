"""`rlm config check`: all that is wrong with a file, at once, and who may read its secrets."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlm.cli.main import main
from rlm.config.check import ERROR, NOTE, WARNING, check_file

HIDDEN = "hidden-from-all"
SOUND = """\
cluster.id: 4L6g3nShT-eMCtK--X86sw
kafka.bootstrap.servers: [127.0.0.1:1]
state.dir: {folder}/state
grpc.listen: unix:{folder}/g
http.listen: 127.0.0.1:2
plugin: local
rsm.config.root: {folder}
"""


def written(folder: Path, more: str = "", text: str = SOUND) -> Path:
    path = folder / "rlm.yaml"
    path.write_text(text.format(folder=folder) + more.format(folder=folder))
    path.chmod(0o640)
    return path


def lines(path: Path, **environment: str) -> list[tuple[str, str]]:
    checked = check_file(path, "reader", environment)
    return [(one.level, one.text) for one in checked.findings]


def test_a_sound_file_has_no_findings(tmp_path: Path) -> None:
    checked = check_file(written(tmp_path), "reader", {})
    assert checked.findings == ()
    assert checked.config is not None and checked.config.stores[0].kind == "local"


def test_all_errors_are_found_at_once(tmp_path: Path) -> None:
    more = "log.levl: info\nproblem.certificate.days: 0\nproxy.listen: 127.0.0.1:3\n"
    text = SOUND.replace("http.listen: 127.0.0.1:2\n", "").replace("plugin: local", "plugin: tape")
    found = lines(written(tmp_path, more, text), RLM_LOG_FORMAT="xml", RLM_LOG_FORMT="json")
    assert {level for level, _ in found} == {ERROR}
    texts = [text for _, text in found]
    for said in (
        "log.levl: unknown setting; did you mean log.level?",
        "RLM_LOG_FORMAT: must be json or console, got 'xml'",
        "RLM_LOG_FORMT: no setting has this variable; did you mean RLM_LOG_FORMAT?",
        "problem.certificate.days: must be a whole number from 1 to 10000, got 0",
        "proxy.listen: a reader has no broker and copies nothing; take it out",
        "plugin: must be local or s3 or hdfs, got 'tape'",
    ):
        assert said in texts
    assert any(text.startswith("http.listen: missing; must be host:port") for text in texts)
    assert len(texts) == 7, texts


def test_all_rules_between_settings_are_checked_at_once(tmp_path: Path) -> None:
    text = SOUND.replace("unix:{folder}/g", "0.0.0.0:4").replace("127.0.0.1:2", "0.0.0.0:5")
    more = "grpc.advertised: h:4\ngrpc.tls.cert.file: /c.pem\napi.authorization: file\n"
    texts = [text for _, text in lines(written(tmp_path, more, text))]
    assert [text.split(" ")[0] for text in texts] == [
        "grpc.tls.cert.file",
        "api.principals.file:",
        "grpc.listen:",
    ]


def test_what_is_no_yaml_is_one_error(tmp_path: Path) -> None:
    [(level, text)] = lines(written(tmp_path, "node.id: [\n"))
    assert level == ERROR and "is not YAML: line 9" in text
    [(level, text)] = lines(tmp_path / "missing.yaml")
    assert level == ERROR and "cannot be read: No such file" in text


def test_modes_of_files_with_secrets(tmp_path: Path) -> None:
    for name, mode in (("token", 0o644), ("principals", 0o600)):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    more = (
        "api.token.file: {folder}/token\napi.principals.file: {folder}/principals\n"
        "ssl.principal.mapping.rules: DEFAULT\nhttp.token.file: {folder}/none\n"
    )
    found = lines(written(tmp_path, more))
    token = f"api.token.file: {tmp_path}/token has mode 0644, so that every user can read it"
    assert (WARNING, f"{token}: chmod o-rwx") in found
    assert (NOTE, f"api.principals.file: {tmp_path}/principals has mode 0600") in found
    assert (ERROR, f"http.token.file: {tmp_path}/none does not exist") in found
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", "does not exist"),
        ("file/below", "cannot be read by this user: Not a directory"),
        ("loop", "cannot be read by this user: Too many levels of symbolic links"),
        ("x" * 300, "cannot be read by this user: File name too long"),
    ],
)
def test_a_file_about_which_this_user_can_learn_nothing(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    found = lines(written(tmp_path, f"api.token.file: {{folder}}/{name}\n"))
    assert found == [(ERROR, f"api.token.file: {tmp_path}/{name} {reason}")]


def test_the_mode_of_a_file_that_has_a_secret_itself(tmp_path: Path) -> None:
    more = (
        "kafka.security.protocol: SASL_PLAINTEXT\nkafka.sasl.mechanism: PLAIN\n"
        f"kafka.sasl.username: rlm\nkafka.sasl.password: {HIDDEN}\n"
    )
    path = written(tmp_path, more)
    assert lines(path) == [(NOTE, f"the settings have a secret: {path} has mode 0640")]
    path.chmod(0o604)
    [(level, text)] = lines(path)
    assert level == WARNING and HIDDEN not in text


def test_what_the_environment_gives_is_named_without_its_value(tmp_path: Path) -> None:
    more = "kafka.security.protocol: SASL_PLAINTEXT\nkafka.sasl.mechanism: PLAIN\n"
    given = {"RLM_KAFKA_SASL_USERNAME": "rlm", "RLM_KAFKA_SASL_PASSWORD": HIDDEN}
    found = lines(written(tmp_path, more), **given)
    assert (NOTE, "kafka.sasl.password: given by RLM_KAFKA_SASL_PASSWORD") in found
    assert HIDDEN not in str(found)


@pytest.mark.parametrize("stores", ["", "stores: 7\n"])
def test_a_secret_in_the_environment_is_not_in_the_file(tmp_path: Path, stores: str) -> None:
    text = SOUND.replace("plugin: local\nrsm.config.root: {folder}\n", stores)
    path = written(tmp_path, "", text)
    path.chmod(0o644)
    store = {"plugin": "s3", "rsm.config.s3.bucket.name": "archive", "rsm.config.s3.region": "r"}
    keys = {"rsm.config.aws.access.key.id": "k", "rsm.config.aws.secret.access.key": HIDDEN}
    given = json.dumps({"hot": store | keys})
    assert lines(path, RLM_STORES=given) == [(NOTE, "stores: given by RLM_STORES")]
    in_file = written(tmp_path, f"stores: {given.replace('{', '{{').replace('}', '}}')}\n", text)
    in_file.chmod(0o644)
    if not stores:
        [(level, said)] = lines(in_file)
        assert level == WARNING and said.startswith("the settings have a secret: ")


def test_a_missing_library_of_a_store_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiobotocore", None)
    text = SOUND.replace("plugin: local\nrsm.config.root: {folder}\n", "")
    s3 = "plugin: s3\nrsm.config.s3.bucket.name: archive\nrsm.config.s3.region: r\n"
    assert lines(written(tmp_path, s3, text)) == [
        (ERROR, "plugin: plugin s3 needs aiobotocore: pip install 'kafka-rlm[s3]'")
    ]


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", "check", "--role", "reader", *arguments])


def test_the_command(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = command(str(path))
    assert (done.exit_code, done.output) == (0, f"{path}: a service can use these settings\n")
    path = written(tmp_path, "log.levl: info\nlog.format: xml\n")
    done = command(str(path), "--online")
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "error    log.levl: unknown setting; did you mean log.level?",
        "error    log.format: must be json or console, got 'xml'",
        "brokers and stores were not asked: the settings cannot be used yet",
    ]
    found = json.loads(command(str(path), "--json").output)
    assert not found["usable"]
    assert [one["level"] for one in found["findings"]] == ["error", "error"]


def test_online_asks_brokers_and_stores(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    text = SOUND.replace("root: {folder}", "root: {folder}/store")
    done = command(str(written(tmp_path, "", text)), "--online")
    assert done.exit_code == 1
    broker, store, *more = done.output.splitlines()
    assert broker.startswith("error    kafka.bootstrap.servers: 127.0.0.1:1: ")
    assert store.startswith("ok       store default: file://") and store.endswith(" answers")
    assert not more
    assert list((tmp_path / "store").iterdir()) == [], "nothing was written"


def test_a_store_that_cannot_be_opened_hides_no_other_finding(tmp_path: Path) -> None:
    (tmp_path / "no-pem").write_text("x")
    text = SOUND.replace(
        "plugin: local\nrsm.config.root: {folder}\n",
        "stores:\n  near: {{plugin: local, rsm.config.root: {folder}/store}}\n"
        "  far: {{plugin.address: 'h:1', plugin.tls.cert.file: {folder}/none, "
        "plugin.tls.key.file: {folder}/none}}\n",
    )
    (tmp_path / "store").mkdir()
    done = command(str(written(tmp_path, "", text)), "--online")
    assert done.exit_code == 1
    said = done.output.splitlines()
    assert any(one.startswith("error    kafka.bootstrap.servers: ") for one in said)
    assert any(one.startswith("ok       store near: file://") for one in said)
    assert any(one.startswith("error    store far: ") for one in said), said
