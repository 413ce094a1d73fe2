"""What a process leaves to the next one in the state dir: how far it read, and a loss (H42)."""

import json
from pathlib import Path

import pytest

from kip405.errors import Invalid
from kip405.ids import TopicPartition
from rlm.service.metadata import ReadsFile
from rlmm.leader_answers import NOTHING_READ, ReadPosition, RememberedReads

PARTITION = TopicPartition("ledger", 3)


def test_h42_what_was_read_and_lost_survives_a_restart(tmp_path: Path) -> None:
    file = ReadsFile(tmp_path, "cluster")
    assert file.read() == NOTHING_READ
    read = {PARTITION: ReadPosition(position=10, leader_epoch=2)}
    topics = frozenset({"ledger"})
    lost = "ledger-3 has lost records"
    file.write(RememberedReads(read_positions=read, lost=lost, lost_topics=topics))
    assert ReadsFile(tmp_path, "cluster").read() == RememberedReads(
        read_positions={PARTITION: ReadPosition(position=10, leader_epoch=2, remembered=True)},
        lost=lost,
        lost_topics=topics,
    )
    older = json.loads(file.path.read_text(encoding="utf-8"))
    del older["lost_topics"]
    file.path.write_text(json.dumps(older), encoding="utf-8")
    assert (file.read().lost, file.read().lost_topics) == (lost, frozenset())
    file.write(RememberedReads(read_positions={}, lost=None))
    assert file.read() == NOTHING_READ
    assert [one.name for one in tmp_path.iterdir()] == [file.path.name]
    assert str(file.path) in file.remedy


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        json.dumps({"cluster_id": "other", "lost": None, "read": []}),
        json.dumps({"cluster_id": "cluster", "read": []}),
        json.dumps({"cluster_id": "cluster", "lost": None, "read": [{"topic": "t"}]}),
        json.dumps({"cluster_id": "cluster", "lost": None, "read": 5}),
    ],
)
def test_h42_a_file_that_is_not_ours_is_refused(tmp_path: Path, content: str) -> None:
    file = ReadsFile(tmp_path, "cluster")
    file.path.write_text(content, encoding="utf-8")
    with pytest.raises(Invalid, match=r"facts-read\.json"):
        file.read()
