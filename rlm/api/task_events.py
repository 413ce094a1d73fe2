"""The last decisions of the tasks of all services of the cluster, for ListEvents."""

from rlm.api.fan_out import answers_of_others
from rlm.api.peers import Peers
from rlm.tasks.decisions import Decisions, TaskDecision
from rlm.v1 import admin_pb2 as pb


class ClusterEvents:
    """Owns nothing."""

    def __init__(self, *, peers: Peers, decisions: Decisions) -> None:
        self._peers = peers
        self._decisions = decisions

    def own(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        """Those of this service, after the number that the request has for it."""
        node_id, decisions = self._peers.node_id, self._decisions
        after = request.after.get(node_id, -1)
        found = (one for one in decisions.after(after) if request.topic in ("", one.topic))
        return pb.ListEventsResponse(
            events=[_event(node_id, one) for one in found],
            sources=[
                pb.EventSource(
                    node_id=node_id,
                    newest=decisions.newest,
                    has_gap=decisions.has_gap(after),
                    running=[
                        pb.RunningTask(pool=one.pool, topic=one.topic, partition=one.partition)
                        for one in decisions.running()
                    ],
                )
            ],
        )

    async def whole(self, request: pb.ListEventsRequest, principal: str) -> pb.ListEventsResponse:
        """Those of all services, by time; one that does not answer is a source with the reason."""
        found = self.own(request)
        asked = pb.ListEventsRequest(
            topic=request.topic,
            after=request.after,
            local_only=True,
            mask_secrets=request.mask_secrets,
        )
        answers, problems = await answers_of_others(
            self._peers, lambda stubs: stubs.admin.ListEvents, asked, principal
        )
        events, sources = list(found.events), list(found.sources)
        for answer in answers:
            events += answer.events
            sources += answer.sources
        sources += [pb.EventSource(node_id=at, problem=why) for at, why in problems.items()]
        events.sort(key=lambda one: (one.at_ms, one.node_id, one.number))
        sources.sort(key=lambda one: one.node_id)
        return pb.ListEventsResponse(events=events, sources=sources)


def _event(node_id: int, one: TaskDecision) -> pb.TaskEvent:
    return pb.TaskEvent(
        node_id=node_id,
        number=one.number,
        at_ms=one.at_ms,
        task=one.task,
        topic=one.topic,
        partition=one.partition,
        failed=one.failed,
        text=one.text,
    )
