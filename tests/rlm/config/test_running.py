"""What a reload takes of a new configuration, and what waits for a restart."""

from pathlib import Path
from typing import Any

import pytest

from rlm.config.common import CommonConfig
from rlm.config.loader import reader_from_mapping
from rlm.config.running import SettingChange, SettingChanges, changes_between, taken_over
from rlm.config.service import settings
from tests.builders.service import broker_config

HIDDEN = "hidden-from-all"


def reader(tmp_path: Path, **more: Any) -> CommonConfig:
    content = {
        "cluster.id": "c1",
        "state.dir": str(tmp_path),
        "kafka.bootstrap.servers": "h:1",
        "grpc.listen": "127.0.0.1:1",
        "http.listen": "127.0.0.1:2",
        "plugin": "s3",
        "rsm.config.s3.bucket.name": "archive",
        "rsm.config.s3.region": "r",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "rlm",
        "kafka.sasl.password": "before",
    }
    return reader_from_mapping(content | {key.replace("__", "."): one for key, one in more.items()})


def test_equal_settings_change_nothing(tmp_path: Path) -> None:
    before, after = (broker_config(tmp_path, {}) for _ in range(2))
    assert changes_between(before, after) == SettingChanges()
    assert taken_over(before, after) == before


def test_what_changes_while_running_is_taken_and_the_rest_is_named(tmp_path: Path) -> None:
    before = broker_config(tmp_path, {})
    after = broker_config(
        tmp_path, {"trim.interval.ms": 5, "log.level": "debug", "max.frame.bytes": 4_096}
    )
    found = changes_between(before, after)
    assert set(found.applied) == {
        SettingChange(key="trim.interval.ms", before="30000", after="5"),
        SettingChange(key="log.level", before="info", after="debug"),
    }
    assert found.needs_restart == ("max.frame.bytes",)
    now = taken_over(before, after)
    assert (now.trim_interval_ms, now.log_level) == (5, "debug")
    assert now.max_frame_bytes == before.max_frame_bytes
    assert changes_between(now, after).needs_restart == ("max.frame.bytes",), "it is still to come"
    assert changes_between(now, after).applied == ()


def test_what_cannot_be_taken_one_by_one_changes_nothing_else(tmp_path: Path) -> None:
    """Of everything else, a configuration that was taken over is the former one."""
    before, after = broker_config(tmp_path, {}), broker_config(tmp_path, {"node.id": 4})
    assert taken_over(before, after) == before


@pytest.mark.parametrize(
    ("changed", "keys"),
    [
        ({"kafka__sasl__password": HIDDEN}, ("kafka.sasl.password",)),
        ({"rsm__config__s3__region": "elsewhere"}, ("rsm.config.s3.region",)),
        (
            {
                "rsm__config__aws__access__key__id": "k",
                "rsm__config__aws__secret__access__key": HIDDEN,
            },
            ("rsm.config.aws.access.key.id", "rsm.config.aws.secret.access.key"),
        ),
    ],
)
def test_secrets_and_stores_wait_for_a_restart_and_are_not_shown(
    tmp_path: Path, changed: dict[str, str], keys: tuple[str, ...]
) -> None:
    found = changes_between(reader(tmp_path), reader(tmp_path, **changed))
    assert (found.applied, found.needs_restart) == ((), keys)
    assert HIDDEN not in repr(found)


def test_another_secret_of_a_store_is_a_change_of_stores(tmp_path: Path) -> None:
    """Nothing that is shown differs."""
    one, other = (
        reader(
            tmp_path,
            rsm__config__aws__access__key__id="k",
            rsm__config__aws__secret__access__key=secret,
        )
        for secret in ("one", "other")
    )
    assert changes_between(one, other).needs_restart == ("stores",)


def test_no_secret_changes_while_a_service_runs() -> None:
    """Its value would be in the log, as what it was and what it is."""
    assert not [row.key for row in settings().values() if row.secret and row.changes_while_running]
