"""An attached reader over the store of a `Site`: it knows the manifests there and nothing else."""

import asyncio
from typing import Any

from kip405.ids import Uuid
from rlm.api.attached_fetch import AttachedFetchService
from rlm.api.calls import Gate
from rlm.api.endpoints import Endpoints
from rlm.api.remote_fetch import RemoteDependencies
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from rlm.remote_log.attached import AttachedLedger, AttachedLog, AttachedSettings
from rlm.remote_log.history import LineageReader
from rlm.remote_log.objects import RemoteObjects
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.tasks.attachment import Attachment, Choices, Round
from rlm.tasks.store_survey import SurveyProgress
from rlmm.settings_records import StoreRecord
from rsm_plugins.threads import Threads
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID
from tests.builders.throttle import throttle
from tests.rlm.api.remote_site import OWN

RECORD = StoreRecord(store_id=STORE_ID, plugin="memory", uri="memory:", prefix="", names=("it",))


class AttachedSite:
    """`service` answers by what `read` has read last."""

    def __init__(
        self, rig: Rig, tasks: asyncio.TaskGroup, threads: Threads, **choices: Any
    ) -> None:
        self.rig = rig
        self.log = AttachedLog()
        self.progress: list[SurveyProgress] = []
        ledger, settings = AttachedLedger(self.log), AttachedSettings(self.log)
        self.attachment = Attachment(
            cluster_id=CLUSTER_ID, log=self.log, choices=Choices(**choices), report=self._report
        )
        reader = RemoteReader(
            store=rig.store,
            cluster_id=CLUSTER_ID,
            tasks=tasks,
            threads=threads,
            clock=rig.clock,
            limits=ReadLimits(memory_bytes=1 << 26),
        )
        self.view = view = RemoteView(
            settings=settings,
            ledger=ledger,
            clock=rig.clock,
            doubts=self.log.doubts,
            absent="has no manifest",
        )
        self.reading = RemoteReading(view=view, reader=LineageReader(reader, ledger))
        self.service = AttachedFetchService(
            RemoteDependencies(
                gate=Gate(),
                view=view,
                reading=self.reading,
                ledger=ledger,
                objects=RemoteObjects(
                    cluster_id=CLUSTER_ID, ledgers=ledger, store=rig.store, threads=threads
                ),
                endpoints=Endpoints(
                    own=OWN, settings=settings, clock=rig.clock, heartbeat_interval_ms=10_000
                ),
                throttle=throttle(rig.clock),
            )
        )

    def _report(self, store_id: Uuid, progress: SurveyProgress) -> None:
        self.progress.append(progress)

    async def read(self) -> Round:
        return await self.attachment.read({STORE_ID: self.rig.store}, [RECORD])
