"""What a service tells of itself for `rlm diagnose`: enough to find a fault, and no secret."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlm.api.call_metadata import Tokens
from rlm.config import ServiceConfig, load
from rlm.plans.problems import Problem, ProblemKind
from rlm.service import diagnosis
from rlm.service.diagnosis import ServiceDiagnosis, secrets_of
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.builders.threads import THREADS

PLANTED = {
    "kafka.sasl.password": "planted-kafka-password",
    "rsm.config.aws.role.external.id": "planted-external-id",
    "rsm.config.my.password": 'planted-"quoted"-é',
}
TOKEN = "planted-api-token"
RECORD = b"planted-record-data"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=200)
    return rig


def config_of(tmp_path: Path, given: Mapping[str, Any]) -> ServiceConfig:
    path = tmp_path / "rlm.yaml"
    path.write_text(json.dumps(dict(given)))
    return load(path)


def diagnosis_of(
    rig: Rig,
    *,
    config: ServiceConfig | None = None,
    tokens: Tokens = (),
    metrics: str = "",
    problem: str = "",
) -> ServiceDiagnosis:
    problems = [Problem(kind=ProblemKind.STARTING, subject="s", text=problem, topic="", since_ms=0)]
    return ServiceDiagnosis(
        node_id=1,
        settings_shown=(lambda: {}) if config is None else config.shown,
        secrets=(lambda: tokens) if config is None else secrets_of(config, lambda: tokens),
        metrics=metrics.encode,
        problems=lambda: problems,
        ledger=rig.ledger,
        settings=rig.settings,
        log_dirs=[rig.log_dir.path],
        threads=THREADS,
    )


async def documents(rig: Rig, **given: Any) -> dict[str, str]:
    found = await diagnosis_of(rig, **given).documents()
    return {name: text.decode() for name, text in found.items()}


async def test_what_is_in_it(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    found = await documents(rig, metrics="m 1\n", problem="so it is")
    assert found["metrics.txt"] == "m 1\n"
    assert json.loads(found["problems.json"])[0]["kind"] == "starting"
    ledger = json.loads(found["ledger.json"])
    [topic] = ledger["topics"]
    assert (topic["topic"], topic["partitions"], topic["finished_segments"]) == ("orders", 1, 1)
    listed = json.loads(found["log-dirs.json"])
    files = listed["files"][str(rig.log_dir.path)]
    log = rig.disk.file(0, ".log")
    assert files[f"{PARTITION.topic}-0/{log.name}"] == log.stat().st_size
    assert listed["is_complete"] and listed["errors"] == []
    assert json.loads(found["versions.json"])["node_id"] == 1


async def test_no_planted_secret_and_no_record_is_in_it(rig: Rig, tmp_path: Path) -> None:
    rig.disk.segment(200, 300, fill=RECORD)
    store = {key: value for key, value in PLANTED.items() if key.startswith("rsm.")}
    given = {
        "node.id": 3,
        "cluster.id": "c1",
        "log.dirs": [str(tmp_path / "logs")],
        "state.dir": str(tmp_path / "state"),
        "broker.direct.address": "127.0.0.1:19092",
        "broker.tiered.address": "127.0.0.1:19093",
        "proxy.listen": "127.0.0.1:9092",
        "grpc.listen": "127.0.0.1:9095",
        "http.listen": "localhost:9096",
        "plugin.command": ["my-plugin", "--password", PLANTED["rsm.config.my.password"]],
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "rlm",
        "kafka.sasl.password": PLANTED["kafka.sasl.password"],
        "allow_insecure": True,
    }
    config = config_of(tmp_path, given | store)
    secrets = [*PLANTED.values(), TOKEN]
    everywhere = f"failed: {' '.join(secrets)}"
    found = await documents(
        rig, config=config, tokens=(TOKEN,), metrics=everywhere, problem=everywhere
    )
    whole = "\n".join(found.values())
    for secret in secrets:
        assert secret not in whole and json.dumps(secret)[1:-1] not in whole, secret
    assert RECORD.decode() not in whole
    assert json.loads(found["settings.json"])["kafka.sasl.username"] == "rlm", "settings are there"
    assert found["metrics.txt"] == f"failed: {' '.join(['***'] * len(secrets))}"


async def test_secrets_in_files_are_masked_too(rig: Rig, tmp_path: Path) -> None:
    secrets = {
        "kafka.sasl.password.file": "planted-password-in-a-file",
        "http.token.file": "planted-http-token-in-a-file",
    }
    given: dict[str, Any] = {
        "node.id": 3,
        "cluster.id": "c1",
        "log.dirs": [str(tmp_path / "logs")],
        "state.dir": str(tmp_path / "state"),
        "broker.direct.address": "127.0.0.1:19092",
        "broker.tiered.address": "127.0.0.1:19093",
        "proxy.listen": "127.0.0.1:9092",
        "grpc.listen": "127.0.0.1:9095",
        "http.listen": "localhost:9096",
        "plugin.command": ["my-plugin"],
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "rlm",
        "allow_insecure": True,
    }
    for key, secret in secrets.items():
        path = tmp_path / key
        path.write_text(f"{secret}\n")
        path.chmod(0o600)
        given[key] = str(path)
    said = f"failed: {' '.join(secrets.values())}"
    found = await documents(rig, config=config_of(tmp_path, given), metrics=said, problem=said)
    assert [one for one in secrets.values() if one in "".join(found.values())] == []
    assert found["metrics.txt"] == "failed: *** ***"
    (tmp_path / "http.token.file").unlink()
    assert await documents(rig, config=config_of(tmp_path, given)), "a file that is gone stops none"


async def test_secrets_are_masked_everywhere_in_an_answer(rig: Rig) -> None:
    said, kept = f"failed: {TOKEN} {TOKEN}", "orders"
    answer = pb.StatusResponse(
        partitions=[fetch_pb2.PartitionDescription(topic=kept, alarms=[said], last_error=said)],
        services=[
            pb.ServiceStatus(
                node_id=1, problems=[said, kept], stores=[pb.StoreStatus(problem=said)]
            )
        ],
    )
    await diagnosis_of(rig, tokens=(TOKEN, "s")).mask(answer)
    masked = "failed: *** ***"
    [partition], [service] = answer.partitions, answer.services
    assert (partition.topic, list(partition.alarms), partition.last_error) == (
        kept,
        [masked],
        masked,
    )
    assert (service.node_id, list(service.problems)) == (1, [masked, kept])
    assert service.stores[0].problem == masked


async def test_documents_in_an_answer_stay_as_they_are(rig: Rig) -> None:
    """They are masked where they are made, and a map has no texts of its own."""
    row = pb.ServiceDocuments(node_id=1, documents={"a.txt": b"\xff"}, problem=f"no {TOKEN}")
    answer = pb.DiagnoseResponse(services=[row])
    await diagnosis_of(rig, tokens=(TOKEN,)).mask(answer)
    assert dict(answer.services[0].documents) == {"a.txt": b"\xff"}
    assert answer.services[0].problem == "no ***"


async def test_a_document_is_bounded(rig: Rig) -> None:
    long = "x" * (diagnosis.MOST_BYTES + 5)
    found = await documents(rig, metrics=long)
    assert len(found["metrics.txt"]) == diagnosis.MOST_BYTES
    assert found["metrics.txt"].endswith("(the rest is left out)\n")


async def test_short_words_are_no_secrets(rig: Rig) -> None:
    assert (await documents(rig, tokens=("a", "m 1"), metrics="m 1"))["metrics.txt"] == "m 1"
