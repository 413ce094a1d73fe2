"""Settings by names of KIP-405's first draft: taken as today's, or refused with the command."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kip405.errors import Invalid
from rlm.config.check import NOTE, check_file
from rlm.config.draft_names import DRAFT_ROWS, ENABLE
from rlm.config.environment import variables
from rlm.config.loader import from_mapping, reader_from_mapping
from rlm.config.service import settings
from rlm.service.lifetime import warn_of_draft_names

PROCESS, RETRY = "rlm_process_interval_ms", "rlm_retry_interval_ms"
INTERVAL = "remote.log.manager.task.interval.ms"
PROCESS_VARIABLE = "RLM_RLM_PROCESS_INTERVAL_MS"
INTERVAL_VARIABLE = "RLM_REMOTE_LOG_MANAGER_TASK_INTERVAL_MS"


def test_names_of_the_draft_are_names_of_todays_settings(given: dict[str, Any]) -> None:
    drafted = {PROCESS: 7_000, RETRY: 900, ENABLE: True}
    config = from_mapping({**given, **drafted}, {})
    assert config.remote_log_manager_task_interval_ms == 7_000
    assert config.remote_log_manager_task_retry_backoff_ms == 900
    assert set(config.draft_names) == drafted.keys()
    assert from_mapping(given, {}).draft_names == ()


def test_every_name_has_a_variable(given: dict[str, Any]) -> None:
    variable = {row.key: name for name, row in variables().items()}
    texts = {variable[PROCESS]: "7000", variable[RETRY]: "900", variable[ENABLE]: "true"}
    config = from_mapping(given, texts)
    assert config.remote_log_manager_task_interval_ms == 7_000
    assert config.remote_log_manager_task_retry_backoff_ms == 900
    assert set(config.draft_names) == {PROCESS, RETRY, ENABLE}
    assert set(DRAFT_ROWS.keys) <= variable.keys()


def test_the_name_of_today_beside_it_must_say_the_same(given: dict[str, Any]) -> None:
    assert from_mapping({**given, PROCESS: 7_000, INTERVAL: 7_000}, {}).draft_names == (PROCESS,)
    with pytest.raises(Invalid) as refused:
        from_mapping({**given, PROCESS: 7_000, INTERVAL: 8_000}, {})
    assert str(refused.value) == (
        f"{PROCESS}: is another name of {INTERVAL}, and they differ: 7000 and 8000; "
        "give one of them"
    )
    with pytest.raises(Invalid) as refused:
        from_mapping(given, {PROCESS_VARIABLE: "7000", INTERVAL_VARIABLE: "8000"})
    assert PROCESS_VARIABLE in str(refused.value) and INTERVAL_VARIABLE in str(refused.value)


@pytest.mark.parametrize("in_file", [PROCESS, INTERVAL])
@pytest.mark.parametrize("variable", [PROCESS_VARIABLE, INTERVAL_VARIABLE])
def test_a_variable_overrides_the_file_by_either_name(
    in_file: str, variable: str, given: dict[str, Any]
) -> None:
    config = from_mapping({**given, in_file: 7_000}, {variable: "8000"})
    assert config.remote_log_manager_task_interval_ms == 8_000


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("remote.retention.period", "7", "rlm topics enable TOPIC --retention 180d"),
        ("remote.retention.bytes", 1, "rlm topics enable TOPIC --retention-bytes 2TiB"),
        (ENABLE, False, "rlm topics disable TOPIC"),
        (ENABLE, "maybe", f"{ENABLE}: must be true, got 'maybe'"),
        (PROCESS, 0, f"{PROCESS}: must be a whole number of at least 1, got "),
    ],
)
def test_what_has_no_setting_today_is_refused_with_its_command(
    key: str, value: object, said: str, given: dict[str, Any]
) -> None:
    name = next(name for name, row in variables().items() if row.key == key)
    with pytest.raises(Invalid) as refused:
        from_mapping({**given, key: value}, {})
    assert str(refused.value).startswith(key) and said in str(refused.value)
    with pytest.raises(Invalid) as refused:
        from_mapping(given, {name: str(value).lower()})
    assert str(refused.value).startswith(name)
    assert said.removeprefix(key) in str(refused.value)


@pytest.mark.parametrize(("key", "value"), [(PROCESS, 7_000), (ENABLE, True)])
def test_a_reader_refuses_them_by_the_name_that_is_given(
    key: str, value: object, given: dict[str, Any]
) -> None:
    taken = {row.key for row in settings().values()} & {"cluster.id", "state.dir", "grpc.listen"}
    own = {name: given[name] for name in taken} | {"http.listen": "127.0.0.1:1"}
    own |= {"kafka.bootstrap.servers": "127.0.0.1:2", "plugin.address": "127.0.0.1:3"}
    reader_from_mapping(own, {})
    with pytest.raises(Invalid, match=key):
        reader_from_mapping({**own, key: value}, {})


def test_a_service_says_at_its_start_what_the_name_is_today(given: dict[str, Any]) -> None:
    config = from_mapping({**given, PROCESS: 7_000, ENABLE: True}, {})
    with capture_logs() as logs:
        warn_of_draft_names(config)
    assert {line["setting"]: line["event"] for line in logs} == dict.fromkeys(
        (PROCESS, ENABLE), "setting_by_draft_name"
    )
    assert INTERVAL in next(line["today"] for line in logs if line["setting"] == PROCESS)
    assert len(logs) == 2


def test_a_check_of_a_file_names_them(given: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rlm.yaml"
    lines = {**given, PROCESS: 7_000}
    (tmp_path / "logs").mkdir()
    path.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    found = check_file(path, "broker", {}).findings
    assert [one.level for one in found if one.text.startswith(f"{PROCESS}: Is {INTERVAL}.")] == [
        NOTE
    ]
