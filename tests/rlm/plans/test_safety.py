"""What each kind of problem means for the data, and the verdict that is made of all (H38)."""

import pytest

from rlm.plans.problems import KINDS, ProblemKind, Risk, Severity, generate_docs
from rlm.plans.safety import Reason, SafetyVerdict, risk_of, safety_verdict

K = ProblemKind
NO_DATA_IN_DANGER = {
    K.PROCESS_MISSING: "the other workers serve",
    K.CERTIFICATE_ENDS_SOON: "it has not ended",
    K.CERTIFICATE_UNUSABLE: "the former files stay in use",
    K.NO_STORE: "nothing is tiered, so nothing is trimmed",
    K.DELETION_WAITS: "what is remote stays until an operator decides",
    K.SNAPSHOT_MISSING: "all records were copied",
    K.TRIM_STOPPED: "more is kept than was asked for; disks have problems of their own",
    K.EXPIRY_STOPPED: "more is kept than was asked for",
}
LOST = {K.SEGMENT_LOST, K.OFFSETS_MISSING}
AT_RISK = {
    *(K.STARTING, K.METADATA, K.METADATA_LOST, K.CLOCK_SKEW, K.HEARTBEAT, K.RIVAL_SERVICE),
    *(K.BROKER_UNKNOWN, K.KAFKA_REFUSED, K.ACL_MISSING, K.HUNG_THREADS, K.PROCESS_ENDS),
    *(K.CERTIFICATE_ENDED, K.PEER_ABSENT, K.PEER_UNREACHABLE, K.LOG_DIR_LOW, K.LOG_DIR_FILLS),
    *(K.RETENTION_GIVEN_BACK, K.LOG_DIR_UNKNOWN, K.STORE_UNAVAILABLE, K.STORE_REFUSES_WRITES),
    *(K.STORE_SETUP, K.TOPIC_RECREATED, K.TOPIC_NOT_SEEN, K.DELETION_DUE, K.RETENTION_REVERTED),
    *(K.LAG_UNKNOWN, K.NOTHING_COPIED, K.COPY_REFUSED, K.CANNOT_COPY, K.OPEN_TRANSACTION),
    *(K.PARTITION_FROZEN, K.TRIM_REFUSED, K.TRIM_BLOCKED, K.TRIM_UNKNOWN, K.FOREIGN_LOG_START),
    *(K.CLEANUP_REFUSED, K.LOSS_NEAR, K.OFFSETS_DISORDERED, K.SEGMENT_UNLISTED, K.NOT_VERIFIED),
    *(K.PARTITION_LEFT_OUT, K.OTHER),
}


def test_h38_every_kind_of_problem_is_in_the_table_once() -> None:
    assert {*NO_DATA_IN_DANGER, *LOST, *AT_RISK} == set(ProblemKind)
    assert len(NO_DATA_IN_DANGER) + len(LOST) + len(AT_RISK) == len(ProblemKind)


@pytest.mark.parametrize("kind", ProblemKind)
def test_h38_what_each_kind_means_for_the_data(kind: ProblemKind) -> None:
    row = KINDS[kind]
    expected = Risk.LOST if kind in LOST else Risk.AT_RISK if kind in AT_RISK else Risk.NONE
    assert row.risk is expected
    assert f"| `{kind.value}` | {row.severity.value} | {row.risk.value} |" in generate_docs()
    assert row.risk is not Risk.LOST or row.severity is Severity.ALARM


def reason(risk: Risk, text: str) -> Reason:
    return Reason(risk=risk, text=text)


NOTHING, DANGER, LOSS = (reason(risk, risk.value) for risk in Risk)


@pytest.mark.parametrize(
    ("problems", "unknown", "words", "texts"),
    [
        ([], [], "SAFE", []),
        ([NOTHING], [], "SAFE", []),
        ([NOTHING, DANGER], [], "AT RISK", ["at-risk"]),
        ([], ["no answer"], "AT RISK", ["no answer"]),
        ([NOTHING], ["no answer"], "AT RISK", ["no answer"]),
        ([DANGER, LOSS], ["no answer"], "LOST", ["lost", "at-risk", "no answer"]),
        ([LOSS], [], "LOST", ["lost"]),
    ],
)
def test_h38_the_verdict_is_the_gravest_and_unknown_is_never_safe(
    problems: list[Reason], unknown: list[str], words: str, texts: list[str]
) -> None:
    found = safety_verdict(problems, unknown)
    assert (found.words, [one.text for one in found.reasons]) == (words, texts)


def test_without_reasons_data_is_safe() -> None:
    assert SafetyVerdict(reasons=()).risk is Risk.NONE


@pytest.mark.parametrize(
    ("word", "risk"),
    [
        ("none", Risk.NONE),
        ("at-risk", Risk.AT_RISK),
        ("lost", Risk.LOST),
        ("", Risk.AT_RISK),
        ("a later word", Risk.AT_RISK),
    ],
)
def test_h38_a_word_that_is_not_known_is_at_risk(word: str, risk: Risk) -> None:
    assert risk_of(word) is risk
