"""Streams of the fetch API go on elsewhere after their last whole batch; what is final is raised at
once; a slow consumer is no stall; TLS, token and principal reach the service.
"""

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from kip405.errors import (
    Busy,
    Corrupt,
    Elsewhere,
    Fenced,
    Internal,
    Invalid,
    NotFound,
    RemoteStorageError,
    Unavailable,
)
from rlm.v1 import fetch_pb2 as pb
from tests.builders.certificates import Authority
from tests.tiered_reads.fake_service import (
    FakeService,
    Responses,
    ending,
    refusing,
    stalling,
)
from tiered_reads.errors import ServiceError
from tiered_reads.fetch_client import Answer, BelowLogStart, BeyondLogEnd, FetchAsk, FetchClient
from tiered_reads.stopping import Stop, Stopped
from tiered_reads.values import OffsetRange, ServiceConnection, TopicPartition

TOPIC_PARTITION = TopicPartition("t", 0)
NOBODY = "127.0.0.1:9"
MOST_TRIES = 3
"""Of what a busy machine may hold up once, by longer than a short limit."""


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService().running() as running:
        yield running


def ask(start: int = 0, end: int = 30, *, remote_only: bool = True) -> FetchAsk:
    return FetchAsk(
        wanted=OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=start, end_offset=end),
        remote_only=remote_only,
        read_committed=False,
    )


def read(
    connection: ServiceConnection, wanted: FetchAsk, *, patience_ms: int = 60_000
) -> list[Answer]:
    client = FetchClient(connection, patience_ms=patience_ms)
    try:
        return list(client.fetch(wanted, Stop()))
    finally:
        client.close()


def bounds(answers: list[Answer]) -> list[tuple[int, int]]:
    return [(answer.piece.start_offset, answer.piece.next_offset) for answer in answers]


def assert_whole(answers: list[Answer], start: int = 0, end: int = 30) -> None:
    """Every offset once: pieces follow each other without gap."""
    edges = bounds(answers)
    assert edges[0][0] == start
    assert edges[-1][1] >= end
    assert all(one[1] == other[0] for one, other in itertools.pairwise(edges))


def test_a_range_in_the_middle_of_batches(service: FakeService) -> None:
    answers = read(service.connection(), ask(4, 11))
    assert bounds(answers) == [(4, 6), (6, 9), (9, 12)]
    [sent] = service.asked("Fetch")
    assert (sent.start_offset, sent.end_offset, sent.tiers) == (4, 11, pb.REMOTE_ONLY)


@pytest.mark.parametrize("error", [Unavailable("store away"), Busy("queue is full")])
def test_a_stream_goes_on_after_its_last_whole_batch(
    service: FakeService, error: RemoteStorageError
) -> None:
    service.scripted.extend([refusing(error, after=2), refusing(error, after=1), refusing(error)])
    assert_whole(read(service.connection(), ask()))
    assert [sent.start_offset for sent in service.asked("Fetch")] == [0, 6, 9, 9]


def test_another_service_takes_over_at_once(service: FakeService) -> None:
    with FakeService().running() as other:
        service.scripted.extend(refusing(Unavailable("dying"), after=4) for _ in range(9))
        other.scripted.extend(refusing(Unavailable("dying"), after=1) for _ in range(3))
        assert_whole(read(service.connection(other.address), ask()))
        assert service.asked("Fetch")
        assert other.asked("Fetch")


def test_a_service_that_is_gone_is_left_for_another(service: FakeService) -> None:
    connection = ServiceConnection(endpoints=(NOBODY, service.address), principal="p")
    client = FetchClient(connection, patience_ms=60_000)
    assert_whole(list(client.fetch(ask(), Stop())))
    assert client.endpoints.for_remote(TOPIC_PARTITION) == (service.address, NOBODY)
    client.close()


@pytest.mark.parametrize("error", [Corrupt("object x is damaged"), NotFound("no t"), Internal("b")])
def test_what_is_final_is_raised_at_once(service: FakeService, error: RemoteStorageError) -> None:
    service.scripted.append(refusing(error, after=1))
    with pytest.raises(ServiceError, match=str(error)) as caught:
        read(service.connection(), ask())
    assert caught.value.kind == error.kind.name
    assert len(service.asked("Fetch")) == 1


def test_patience_ends_with_the_last_reason(service: FakeService) -> None:
    service.scripted.extend(refusing(Unavailable("the store is away")) for _ in range(1000))
    asked = 0
    for _ in range(MOST_TRIES):
        before = len(service.asked("Fetch"))
        with pytest.raises(ServiceError, match="the store is away; gave up after"):
            read(service.connection(), ask(), patience_ms=4_000)
        if (asked := len(service.asked("Fetch")) - before) > 2:
            break
    assert asked > 2


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("remote_only", [False, True])
def test_below_the_log_start_says_where_it_is(
    service: FakeService, is_older: bool, remote_only: bool
) -> None:
    service.start, service.is_older = 12, is_older
    with pytest.raises(BelowLogStart) as caught:
        read(service.connection(), ask(remote_only=remote_only))
    assert caught.value.log_start_offset == 12
    assert len(service.asked("Fetch")) == 1
    tiers = [request.tiers for request in service.asked("ListOffsets")]
    assert tiers == ([_tiers(remote_only)] * 2 if is_older else [])


@pytest.mark.parametrize("is_older", [False, True])
def test_beyond_the_log_end_is_said(service: FakeService, is_older: bool) -> None:
    service.is_older = is_older
    with pytest.raises(BeyondLogEnd):
        read(service.connection(), ask(31, 40, remote_only=False))
    assert len(service.asked("Fetch")) == 1
    assert len(service.asked("ListOffsets")) == (2 if is_older else 0)


def test_an_older_service_is_asked_again_where_the_bounds_moved_meanwhile(
    service: FakeService,
) -> None:
    service.scripted.append(refusing(Invalid("t-0: offset 0 is beyond high_watermark=-1")))
    assert_whole(read(service.connection(), ask(remote_only=False)))
    assert len(service.asked("Fetch")) == 2


def test_a_refusal_that_the_bounds_do_not_explain_is_final(service: FakeService) -> None:
    service.scripted.extend(refusing(Invalid("log_start_offset=12 is no reason")) for _ in range(9))
    with pytest.raises(ServiceError, match="is no reason") as caught:
        read(service.connection(), ask(remote_only=False))
    assert caught.value.kind == "INVALID"
    assert len(service.asked("Fetch")) == 6


def test_an_older_service_that_dies_before_it_answers_the_bounds(service: FakeService) -> None:
    service.start, service.is_older = 12, True
    service.failing_offsets.append(Unavailable("dying"))
    with pytest.raises(BelowLogStart):
        read(service.connection(), ask())
    assert len(service.asked("Fetch")) == 2


def test_an_older_service_that_refuses_the_question_for_its_bounds(service: FakeService) -> None:
    service.start, service.is_older = 12, True
    service.failing_offsets.extend(Invalid("not allowed") for _ in range(9))
    with pytest.raises(ServiceError, match="below"):
        read(service.connection(), ask())
    assert len(service.asked("Fetch")) == 6


def _tiers(remote_only: bool) -> pb.Tiers:
    return pb.REMOTE_ONLY if remote_only else pb.ALL_TIERS


def test_the_leader_is_followed_and_remembered(service: FakeService) -> None:
    with FakeService().running() as leader:
        wrong = refusing(Elsewhere("broker 2 leads", leader.address))
        service.scripted.append(wrong)
        client = FetchClient(service.connection(), patience_ms=60_000)
        wanted = ask(remote_only=False)
        assert_whole(list(client.fetch(wanted, Stop())))
        assert_whole(list(client.fetch(wanted, Stop())))
        client.close()
        assert len(service.asked("Fetch")) == 1
        assert len(leader.asked("Fetch")) == 2


def test_the_leader_changes_in_mid_stream(service: FakeService) -> None:
    with FakeService().running() as leader:
        service.scripted.append(refusing(Elsewhere("broker 2 leads", leader.address), after=2))
        assert_whole(read(service.connection(), ask(remote_only=False)))
        assert [sent.start_offset for sent in leader.asked("Fetch")] == [6]


def test_two_services_that_name_each_other_are_asked_until_patience_ends(
    service: FakeService,
) -> None:
    with FakeService().running() as other:
        for one, leader in ((service, other.address), (other, service.address)):
            one.scripted.extend(refusing(Elsewhere("not me", leader)) for _ in range(1000))
        with pytest.raises(ServiceError, match="not me"):
            read(service.connection(other.address), ask(remote_only=False), patience_ms=1_000)
        assert len(service.asked("Fetch")) + len(other.asked("Fetch")) < 60


def test_an_election_is_waited_for(service: FakeService) -> None:
    service.scripted.extend(refusing(Fenced("no leader now")) for _ in range(3))
    assert_whole(read(service.connection(), ask(remote_only=False)))


def test_a_stall_ends_a_call_and_another_service_goes_on(service: FakeService) -> None:
    with FakeService().running() as other:
        for one in (service, other):
            one.scripted.append(stalling(after=2))
        answers = read(service.connection(other.address, call_timeout_ms=400), ask())
        assert_whole(answers)
        assert len(service.asked("Fetch")) + len(other.asked("Fetch")) >= 2


def test_a_question_is_asked_elsewhere_when_a_service_says_nothing(service: FakeService) -> None:
    """Long before a message of a stream counts as late."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = (f"127.0.0.1:{silent.getsockname()[1]}", service.address)
        connection = replace(service.connection(call_timeout_ms=600_000), endpoints=given)
        client = FetchClient(connection, patience_ms=60_000, question_limit_ms=300)
        began_s = time.monotonic()
        found = client.list_offset(
            TOPIC_PARTITION, -1, remote_only=False, read_committed=False, stop=Stop()
        )
        client.close()
    assert found == 30
    assert time.monotonic() - began_s < 60


def test_a_slow_consumer_is_no_stall(service: FakeService) -> None:
    client = FetchClient(service.connection(call_timeout_ms=1_000), patience_ms=60_000)
    pause, asked = threading.Event(), 0
    for _ in range(MOST_TRIES):
        before, answers = len(service.asked("Fetch")), list[Answer]()
        for answer in client.fetch(ask(0, 9), Stop()):
            pause.wait(1.5)
            answers.append(answer)
        assert_whole(answers, 0, 9)
        if (asked := len(service.asked("Fetch")) - before) == 1:
            break
    client.close()
    assert asked == 1


def test_a_slow_consumers_time_is_not_the_services(service: FakeService) -> None:
    """A failure after a long pause of the consumer is the first one, not the end of patience."""
    client = FetchClient(service.connection(), patience_ms=3_000)
    before, found = 0, list[Answer]()
    for number in range(MOST_TRIES):
        service.scripted.append(refusing(Unavailable("restarting"), after=2))
        before = len(service.asked("Fetch"))
        answers = client.fetch(ask(), Stop())
        found = [next(answers), next(answers)]
        threading.Event().wait(3.2)
        try:
            found += answers
            break
        except ServiceError:
            assert number < MOST_TRIES - 1
    client.close()
    assert_whole(found)
    assert [sent.start_offset for sent in service.asked("Fetch")][before:] == [0, 6]


@pytest.mark.parametrize("next_offset", [0, 3])
def test_an_answer_that_leads_back_is_an_error_and_no_repetition(
    service: FakeService, next_offset: int
) -> None:
    def astray(
        service: FakeService, request: pb.FetchRequest, context: grpc.ServicerContext
    ) -> Responses:
        yield pb.FetchResponse(next_offset=3)
        yield pb.FetchResponse(next_offset=next_offset)

    service.scripted.append(astray)
    client = FetchClient(service.connection(), patience_ms=60_000)
    answers = client.fetch(ask(), Stop())
    assert next(answers).piece.next_offset == 3
    with pytest.raises(ServiceError, match=f"from offset 3 it goes on at {next_offset}"):
        next(answers)
    client.close()


def test_a_stream_that_ends_early_just_ends(service: FakeService) -> None:
    service.scripted.append(ending(after=3))
    assert bounds(read(service.connection(), ask())) == [(0, 3), (3, 6), (6, 9)]


def test_a_stop_ends_a_stalled_call(service: FakeService) -> None:
    service.scripted.append(stalling(after=1))
    client, stop = FetchClient(service.connection(), patience_ms=60_000), Stop()
    answers = client.fetch(ask(), stop)
    next(answers)
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    with pytest.raises(Stopped):
        next(answers)
    timer.join()
    client.close()


def test_token_and_principal_go_with_every_call(service: FakeService) -> None:
    service.token = "secret-word"
    connection = service.connection()
    assert_whole(read(connection, ask()))
    assert {sent["rlm-principal"] for _, _, sent in service.calls} == {"tester"}
    assert "secret-word" not in repr(connection)


def test_a_wrong_token_is_final(service: FakeService) -> None:
    connection = service.connection()
    service.token = "secret-word"
    with pytest.raises(ServiceError, match="no valid token") as caught:
        read(connection, ask())
    assert caught.value.kind == "INVALID"
    assert "secret-word" not in str(caught.value)


def test_a_new_token_of_a_file_goes_with_the_next_call(
    service: FakeService, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    old = replace(service.connection(), token="old", token_file=str(path))
    client = FetchClient(old, patience_ms=60_000)
    service.token = "old"
    assert_whole(list(client.fetch(ask(), Stop())))  # the file is on the driver alone
    for content, token in (("new\nold\n", "new"), ("", "new"), ("\xe4", "new"), ("third", "third")):
        path.write_text(content, encoding="utf-8")
        service.token = token
        assert_whole(list(client.fetch(ask(), Stop())))
    path.unlink()
    assert_whole(list(client.fetch(ask(), Stop())))
    client.close()


def test_tls_both_ways(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    cert, ours = authority.issue("service", "service.example"), clients.issue("executor")
    credentials = grpc.ssl_server_credentials(
        [(cert.key_file.read_bytes(), cert.cert_file.read_bytes())],
        root_certificates=clients.ca_file.read_bytes(),
        require_client_auth=True,
    )
    files = {
        "tls_ca_file": str(authority.ca_file),
        "tls_cert_file": str(ours.cert_file),
        "tls_key_file": str(ours.key_file),
        "tls_server_name": "service.example",
    }
    with FakeService().running(credentials) as service:
        assert_whole(read(service.connection(**files), ask()))
        for missing in ("tls_server_name", "tls_cert_file", "tls_ca_file"):
            fewer = {name: value for name, value in files.items() if name != missing}
            if missing == "tls_cert_file":
                del fewer["tls_key_file"]
            # A refused certificate is an error at once; a closed connection is retried.
            words = "gave up|no authority that is trusted|does not have the name"
            with pytest.raises(ServiceError, match=words) as caught:
                read(service.connection(**fewer), ask(), patience_ms=4_000)
            if missing != "tls_cert_file":
                assert caught.value.kind == "INVALID"


def test_certificates_that_are_renewed_are_used_by_the_next_call(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.ca_file.read_bytes())
    cert = new.issue("service", "service.example")
    credentials = grpc.ssl_server_credentials(
        [(cert.key_file.read_bytes(), cert.cert_file.read_bytes())]
    )
    files = {"tls_ca_file": str(trusted), "tls_server_name": "service.example"}
    with FakeService().running(credentials) as service:
        client = FetchClient(service.connection(**files), patience_ms=60_000)
        with pytest.raises(ServiceError, match="no authority that is trusted here"):
            list(client.fetch(ask(), Stop()))
        trusted.write_bytes(new.ca_file.read_bytes())
        streaming = client.fetch(ask(), Stop())
        first = next(streaming)
        trusted.write_bytes(new.ca_file.read_bytes() + old.ca_file.read_bytes())
        assert_whole(list(client.fetch(ask(), Stop())))
        trusted.unlink()
        assert_whole(list(client.fetch(ask(), Stop())))
        assert_whole([first, *streaming])  # what was under way went on
        client.close()


def test_readers_are_found_from_a_broker_and_asked_first(service: FakeService) -> None:
    with FakeService().running() as reader:
        service.endpoints = (
            pb.Endpoint(grpc_address=service.address, role="broker", node_id=1),
            pb.Endpoint(grpc_address=reader.address, role="reader", node_id=-1),
        )
        client = FetchClient(service.connection(), patience_ms=60_000)
        assert_whole(list(client.fetch(ask(), Stop())))
        assert_whole(list(client.fetch(ask(remote_only=False), Stop())))
        client.close()
        assert [sent.tiers for sent in reader.asked("Fetch")] == [pb.REMOTE_ONLY]
        assert [sent.tiers for sent in service.asked("Fetch")] == [pb.ALL_TIERS]
        assert len(service.asked("DescribeEndpoints")) == 1


def test_a_service_that_comes_up_later_is_asked_for_the_other_services() -> None:
    connection = ServiceConnection(endpoints=(NOBODY,), principal="p")
    client = FetchClient(connection, patience_ms=100)
    with pytest.raises(ServiceError):
        list(client.fetch(ask(), Stop()))
    assert client.endpoints.is_due
    client.close()


def test_offsets_and_topics(service: FakeService) -> None:
    service.remote_end = 24
    client = FetchClient(service.connection(), patience_ms=60_000)

    def offset(timestamp: int, *, remote_only: bool) -> int | None:
        return client.list_offset(
            TOPIC_PARTITION, timestamp, remote_only=remote_only, read_committed=True, stop=Stop()
        )

    assert [offset(-1, remote_only=remote) for remote in (True, False)] == [24, 30]
    assert offset(1_007, remote_only=True) == 7
    assert offset(9_999, remote_only=True) is None
    [topic] = client.describe_topics(("t", "not enabled"), TOPIC_PARTITION, Stop())
    assert topic.partitions[0].remote_next_offset == 24
    client.close()


def test_nothing_is_left_behind(service: FakeService) -> None:
    before = threading.active_count()
    client = FetchClient(service.connection(), patience_ms=60_000)
    half = client.fetch(ask(), Stop())
    next(half)
    half.close()
    client.close()
    assert not [one for one in threading.enumerate() if one.name == "rlm-stall-watchdog"]
    assert threading.active_count() <= before + 8  # the fake server's own pool
