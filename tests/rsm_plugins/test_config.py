"""Settings of the plugin: what is taken, and refusals that name the key and what is allowed."""

import traceback
from pathlib import Path

import pytest

from kip405.errors import Invalid
from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.local.manager import KIND
from rsm_plugins.process.config import SETTINGS, load_settings, settings_of
from rsm_plugins.process.yaml_text import read_text

LEAST = {"listen": "127.0.0.1:7001", "rsm.config.root": "/store"}


def test_the_least_configuration() -> None:
    settings = settings_of(LEAST)
    assert settings.listen == "127.0.0.1:7001"
    assert settings.kind == "local"
    assert settings.store == {
        "rsm.config.root": Path("/store"),
        "rsm.config.prefix": "",
        "rsm.config.blocks.size.bytes": 64 << 20,
        "rsm.config.pinterest.root": None,
        "rsm.config.pinterest.cluster": None,
        "rsm.config.pinterest.prefix": "",
        "rsm.config.pinterest.entropy.bits": 0,
    }
    assert not settings.allow_insecure
    assert settings.source_folders is None
    assert settings.tls is None


def test_every_setting_reaches_its_field() -> None:
    content = {
        **LEAST,
        "plugin": "local",
        "rsm.config.prefix": "a/b",
        "rsm.config.blocks.size.bytes": 5 << 20,
        "rsm.config.pinterest.root": "/bucket",
        "rsm.config.pinterest.cluster": "theirs",
        "rsm.config.pinterest.prefix": "c",
        "rsm.config.pinterest.entropy.bits": 5,
        "allow_insecure": True,
        "tls.cert.file": "/cert",
        "tls.key.file": "/key",
        "tls.client.ca.file": "/ca",
        "log_level": "debug",
        "shared.volume": False,
        "shared.source.dirs": ["/logs"],
        "shared.scratch.dirs": ["/scratch"],
        "spool.dir": "/spool",
        "file.threads": 3,
        "copies.by.bytes.max": 2,
        "sweep.grace.ms": 5,
        "loop.hang.ms": 6,
    }
    settings = settings_of(content)
    assert set(content) == {row.key for row in (*SETTINGS, *KIND.settings)}
    assert settings.store["rsm.config.prefix"] == "a/b"
    assert (settings.log_level, settings.file_threads) == ("debug", 3)
    assert (settings.copies_by_bytes_max, settings.sweep_grace_ms) == (2, 5)
    assert settings.hang_ms == 6
    assert settings.source_folders == (Path("/logs"),)
    assert settings.scratch_folders == (Path("/scratch"),)
    assert settings.spool_folder == Path("/spool")
    assert settings.tls == ServerTls(
        cert_file=Path("/cert"), key_file=Path("/key"), client_ca_file=Path("/ca")
    )
    assert settings.allow_insecure
    assert not settings.shared_volume


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listen": None}, "listen: missing; must be 127.0.0.1:PORT"),
        (
            {"listen": 7001},
            "listen: must be 127.0.0.1:PORT (0 takes a free one) or unix:/short/path, got 7001",
        ),
        (
            {"listen": "here"},
            "/short/path, got 'here': neither host:port, [IPv6]:port nor unix:/path",
        ),
        ({"listen": "0.0.0.0:1"}, "listen: 0.0.0.0:1 is not loopback"),
        (
            {"rsm.config.root": "relative"},
            "rsm.config.root: must be an absolute path, got 'relative'",
        ),
        ({"rsm.config.root": None}, "rsm.config.root: missing; must be an absolute path"),
        (
            {"rsm.config.prefix": "/a"},
            "got '/a': prefix '/a' must neither begin nor end with a slash",
        ),
        (
            {"rsm.config.rot": "/a"},
            "rsm.config.rot: unknown setting; did you mean rsm.config.root?",
        ),
        ({"xyzzy": 1}, "xyzzy: unknown setting; allowed: allow_insecure"),
        ({"plugin": "s4"}, "plugin: must be local or s3 or hdfs, got 's4'"),
        ({"plugin": ["s3"]}, "plugin: must be local or s3 or hdfs, got ['s3']"),
        ({"tls.cert.file": "/c"}, "tls.cert.file is given without tls.key.file"),
        ({"tls.key.file": "/c"}, "tls.key.file is given without tls.cert.file"),
        ({"tls.client.ca.file": "/c"}, "tls.client.ca.file is given without tls.cert.file"),
        (
            {"listen": "0.0.0.0:1", "tls.cert.file": "/c", "tls.key.file": "/k"},
            "listen: 0.0.0.0:1 is not loopback",
        ),
        ({7: "x"}, "7: unknown setting"),
        ({"allow_insecure": "yes"}, "allow_insecure: must be true or false, got 'yes'"),
        ({"file.threads": True}, "file.threads: must be a whole number from 1 to 256, got True"),
        ({"file.threads": 0}, "file.threads: must be a whole number from 1 to 256, got 0"),
        ({"log_level": "loud"}, "log_level: must be debug or info or warning or error, got 'loud'"),
        (
            {"shared.source.dirs": "/a"},
            "shared.source.dirs: must be a list of absolute paths, got '/a'",
        ),
        (
            {"shared.source.dirs": ["a"]},
            "shared.source.dirs: must be a list of absolute paths, got 'a', which is not",
        ),
    ],
)
def test_refusals_name_the_key(changes: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid) as caught:
        settings_of({**LEAST, **changes})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "word", "\x00"])
def test_files_that_cannot_be_settings(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Invalid, match=r"plugin\.yaml") as caught:
        load_settings(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(Invalid, match="No such file"):
        load_settings(tmp_path / "absent.yaml")


def test_a_broken_file_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text("listen: x\nkey.secret: [swordfish\n", encoding="utf-8")
    with pytest.raises(Invalid, match="is not YAML: line 3, column 1") as caught:
        load_settings(path)
    assert "swordfish" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "value", ["!!int swordfish", "!!bool swordfish", "!!timestamp swordfish", "2001-99-99"]
)
def test_a_value_that_yaml_cannot_read_is_not_quoted(value: str, tmp_path: Path) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text(f"plugin: local\nrsm.config.root: {value}\n", encoding="utf-8")
    with pytest.raises(Invalid, match="has a value that YAML cannot read") as caught:
        load_settings(path)
    assert "swordfish" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b\n\tc: d\n", "line 2, column 1: indent with spaces instead of tabs"),
        ("a: b: c\n", "line 1, column 5: a line has a second ': '"),
        ("a: @b\n", "line 1, column 4: put a value that begins with this character in quotes"),
        ("a: *b\n", "line 1, column 4: put a value that begins with * in quotes"),
        ("a: !b c\n", "line 1, column 4: put a value that begins with ! in quotes"),
        ('a: "b\n', "line 2, column 1: a quote is not closed"),
        ("a: 1\nb\nc: 2\n", "line 3, column 1: the line before has no ': '"),
        ("a: [1, 2\nb: 3\n", "line 2, column 2: a bracket is not closed, or a comma is missing"),
        ("a: [\n", "line 2, column 1: a bracket is not closed, or a value is missing"),
        ("a:\n  - 1\n b: 2\n", "line 3, column 2: the line is not indented as the lines above it"),
        ("  a: 1\nb: 2\n", "line 2, column 1: the line is not indented as the lines above it"),
        ("a: &\n", "line 1, column 5: ScannerError"),
    ],
)
def test_a_broken_file_is_refused_with_what_mends_it(
    text: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Invalid) as caught:
        load_settings(path)
    assert f"is not YAML: {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key.secret: swordfish\nplugin: local\nkey.secret: halibut\n", "key.secret: given twice"),
        ("a: {key.secret: swordfish,\n\n  key.secret: swordfish}\n", "key.secret: given twice"),
        ("- key.secret: x\n  plugin: local\n  'key.secret': x\n", "key.secret: given twice"),
        ('"a\\nb": 1\nb: 1\n"a\\nb": 1\n', r"'a\nb': given twice"),
    ],
)
def test_a_key_that_is_given_twice_is_refused_with_both_lines(
    text: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Invalid) as caught:
        load_settings(path)
    assert str(caught.value) == f"{path}: {expected}, in lines 1 and 3"
    shown = "".join(traceback.format_exception(caught.value))
    assert "swordfish" not in shown and "halibut" not in shown


def test_a_key_may_replace_one_of_a_mapping_that_is_taken_over() -> None:
    text = "outer:\n  inner: &b\n    <<: &a {x: 1}\n    x: 2\nc:\n  <<: *b\n  x: 3\n"
    found = read_text(text, "a text")
    assert found == {"outer": {"inner": {"x": 2}}, "c": {"x": 3}}


def test_settings_do_not_show_those_of_the_store() -> None:
    assert "/store" not in repr(settings_of(LEAST))


def test_with_client_certificates_an_address_need_not_be_private() -> None:
    tls = {"tls.cert.file": "/c", "tls.key.file": "/k", "tls.client.ca.file": "/ca"}
    assert settings_of({**LEAST, **tls, "listen": "0.0.0.0:1"}).listen == "0.0.0.0:1"
