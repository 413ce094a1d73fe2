"""Settings of the plugin: what is taken, and refusals that name the key and what is allowed."""

from pathlib import Path

import pytest

from kip405.errors import Invalid
from rsm_plugins.config import SETTINGS, load_settings, settings_of

LEAST = {"listen": "127.0.0.1:7001", "rsm.config.root": "/store"}


def test_the_least_configuration() -> None:
    settings = settings_of(LEAST)
    assert settings.listen == "127.0.0.1:7001"
    assert (settings.plugin, settings.root, settings.prefix) == ("local", Path("/store"), "")
    assert not settings.allow_insecure
    assert settings.source_folders is None


def test_every_setting_reaches_its_field() -> None:
    content = {
        **LEAST,
        "plugin": "local",
        "rsm.config.prefix": "a/b",
        "allow_insecure": True,
        "log_level": "debug",
        "shared.volume": False,
        "shared.source.dirs": ["/logs"],
        "file.threads": 3,
        "copies.by.bytes.max": 2,
        "sweep.grace.ms": 5,
    }
    settings = settings_of(content)
    assert set(content) == {setting.key for setting in SETTINGS}
    assert (settings.prefix, settings.log_level, settings.file_threads) == ("a/b", "debug", 3)
    assert (settings.copies_by_bytes_max, settings.sweep_grace_ms) == (2, 5)
    assert settings.source_folders == (Path("/logs"),)
    assert settings.allow_insecure
    assert not settings.shared_volume


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listen": None}, "listen is missing; allowed: 127.0.0.1:PORT"),
        ({"listen": 7001}, "listen: 7001 is not allowed; allowed: 127.0.0.1:PORT"),
        ({"listen": "here"}, "listen: 'here' is not allowed"),
        ({"listen": "0.0.0.0:1"}, "listen: 0.0.0.0:1 is not loopback"),
        ({"rsm.config.root": "relative"}, "rsm.config.root: 'relative' is not allowed"),
        ({"rsm.config.root": None}, "rsm.config.root is missing"),
        ({"rsm.config.prefix": "/a"}, "rsm.config.prefix: '/a' is not allowed"),
        ({"rsm.config.rot": "/a"}, "rsm.config.rot is no setting; did you mean rsm.config.root?"),
        ({"xyzzy": 1}, "xyzzy is no setting; allowed: allow_insecure"),
        ({"plugin": "s4"}, "plugin: 's4' is not allowed; allowed: local"),
        ({"allow_insecure": "yes"}, "allow_insecure: 'yes' is not allowed; allowed: true | false"),
        ({"file.threads": True}, "file.threads: True is not allowed; allowed: 1 to 256"),
        ({"file.threads": 0}, "file.threads: 0 is not allowed; allowed: 1 to 256"),
        ({"log_level": "loud"}, "log_level: 'loud' is not allowed; allowed: debug | info"),
        ({"shared.source.dirs": "/a"}, "shared.source.dirs: '/a' is not allowed"),
        ({"shared.source.dirs": ["a"]}, "shared.source.dirs: ['a'] is not allowed"),
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
