"""`rlm doctor`: what it says of each store and of each check, and when it fails."""

import json
from pathlib import Path

from rlm.stores.reports import Level, StoreReport, Verdict
from tests.builders.service import NOBODY, common_settings
from tests.rlm.api.harness import Node
from tests.rlm.cli.invoking import asked, assert_one_line, rlm


async def test_doctor_shows_the_gravest_first_and_fails_on_an_alarm(node: Node) -> None:
    node.stores.reports = (
        StoreReport(
            name="hot",
            uri="s3://hot",
            verdicts=(
                Verdict(level=Level.ALARM, text="objects go after 7 d"),
                Verdict(level=Level.HINT, text="versions stay"),
            ),
        ),
        StoreReport(name="cold", problem="the plugin is away"),
    )
    shown = await asked(node, "doctor", "--store")
    assert shown.exit_code == 1
    assert shown.stdout.splitlines() == [
        "store hot  s3://hot",
        "  ALARM      objects go after 7 d",
        "  hint       versions stay",
        "",
        "store cold",
        "  NOT ASKED  the plugin is away",
    ]
    found = await asked(node, "doctor", "--store", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["stores"][0]["verdicts"][0]["level"] == "alarm"


async def test_doctor_without_an_alarm_succeeds(node: Node) -> None:
    hint = Verdict(level=Level.HINT, text="versions stay")
    node.stores.reports = (StoreReport(name="hot", verdicts=(hint,)),)
    assert (await asked(node, "doctor", "--store")).exit_code == 0
    node.stores.reports = ()
    nothing = await asked(node, "doctor", "--store")
    assert (nothing.exit_code, nothing.stdout) == (
        *(0,),
        "no store is configured: nothing is tiered\n",
    )
    assert_one_line(await asked(node, "doctor"), "--config FILE or --store", status=2)


async def test_doctor_asks_the_stores_of_a_configuration_directly(tmp_path: Path) -> None:
    """A plugin is started for it, and stopped again."""
    (tmp_path / "store").mkdir()
    config = tmp_path / "rlm.yaml"
    addresses = {
        "node.id": 1,
        "cluster.id": "c1",
        "log.dirs": str(tmp_path / "logs"),
        "state.dir": str(tmp_path / "state"),
        "broker.direct.address": "127.0.0.1:1",
        "broker.tiered.address": "127.0.0.1:2",
        "proxy.listen": "127.0.0.1:3",
        "grpc.listen": "127.0.0.1:4",
        "http.listen": "127.0.0.1:5",
        "plugin": "local",
        "rsm.config.root": str(tmp_path / "store"),
    }
    config.write_text(json.dumps(addresses))
    found = await rlm("doctor", "--store", "--config", str(config), "--json")
    assert found.exit_code == 0, found.output
    [store] = json.loads(found.stdout)["stores"]
    assert (store["name"], store["problem"]) == ("default", "")
    assert [one["kind"] for one in store["findings"]] == ["free_space"]
    config.write_text(json.dumps({**addresses, "rsm.config.rot": "/x"}))
    refused = await rlm("doctor", "--store", "--config", str(config))
    assert_one_line(refused, "rsm.config.rot", "did you mean rsm.config.root?", status=2)


async def test_h38_without_the_broker_what_is_local_is_shown(tmp_path: Path) -> None:
    """There is no verdict: it is another exit status than that of findings."""
    config = tmp_path / "rlm.yaml"
    settings = {
        **common_settings(tmp_path, NOBODY),
        "node.id": 1,
        "log.dirs": str(tmp_path / "logs"),
        "broker.direct.address": str(NOBODY),
        "broker.tiered.address": str(NOBODY),
        "proxy.listen": "127.0.0.1:3",
    }
    config.write_text(json.dumps(settings))
    asking = ("doctor", "--config", str(config), "--timeout", "2")
    found = await rlm(*asking, "--json")
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1), found.output
    assert found.stderr.startswith("rlm: the broker cannot be asked: ")
    assert str(NOBODY) in found.stderr
    checks = {one["check"]: one for one in json.loads(found.stdout)["checks"]}
    assert checks["log-dirs"]["findings"] and not checks["log-dirs"]["unasked"]
    assert str(NOBODY) in checks["own-topics"]["unasked"]
    unwanted = checks["as-client"]
    assert (unwanted["sound"], unwanted["unasked"]) == (None, "")
    assert unwanted["unwanted"] == "--as-client was not given"
    shown = await rlm(*asking)
    assert shown.exit_code == 2 and "alarm: log-dirs: " in shown.stdout
    lines = shown.stdout.splitlines()
    assert ["as-client", "not", "checked"] in [line.split() for line in lines]
    assert "not checked: as-client: --as-client was not given" in lines
    wrong = await rlm(*asking, "--as-client", "nowhere")
    assert_one_line(wrong, "--as-client", "nowhere", status=2)


async def test_the_file_of_a_reader_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    config = tmp_path / "reader.yaml"
    settings = common_settings(tmp_path, NOBODY)
    del settings["plugin.address"]
    stores = {"plugin": "local", "rsm.config.root": str(tmp_path / "store")}
    config.write_text(json.dumps({**settings, **stores}))
    refused = await rlm("doctor", "--config", str(config))
    assert_one_line(refused, "is a reader's", "`rlm config check --role reader --online", status=2)
    found = await rlm("doctor", "--store", "--config", str(config), "--json")
    assert found.exit_code == 0, found.output
    assert [one["problem"] for one in json.loads(found.stdout)["stores"]] == [""]
