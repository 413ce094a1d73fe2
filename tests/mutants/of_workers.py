"""Planted bugs in proxy workers: what passes between them and the core, and who restarts whom."""

from tests.mutants.edits import Edit, Target

_CALLS = ("tests/rlm/workers/test_h24_core_calls.py",)
_FRAMES = ("tests/rlm/workers/test_frames.py", "tests/rlm/workers/test_frames_on_sockets.py")
FRAMES = Target("rlm/workers/frames.py", _FRAMES)
MESSAGES = Target("rlm/workers/messages.py", ("tests/rlm/workers/test_messages.py",))
VIEWS = Target("rlm/workers/views.py", ("tests/rlm/workers/test_views.py",))
BARRIERS = Target("rlm/workers/views.py", _CALLS)
MIRROR = Target("rlm/workers/mirror.py", _CALLS)
CORE = Target("rlm/workers/core.py", _CALLS)
REMOTE_CORE = Target("rlm/workers/remote_core.py", _CALLS)
CONNECTED = Target("rlm/workers/remote_core.py", ("tests/rlm/workers/test_counts.py",))
COUNTS = Target("rlm/workers/counts.py", ("tests/rlm/workers/test_counts.py",))
QUOTAS = Target("rlm/workers/quotas.py", ("tests/rlm/workers/test_counts.py",))
MEMORY = Target("rlm/workers/records_memory.py", ("tests/rlm/workers/test_records_memory.py",))
CHILDREN = Target("rlm/workers/children.py", ("tests/rlm/workers/test_h24_supervisor.py",))
SUPERVISOR = Target("rlm/workers/supervisor.py", ("tests/rlm/workers/test_h24_supervisor.py",))
LISTENING = Target("rlm/proxy/listening.py", ("tests/rlm/proxy/test_listening.py",))
_PROCESSES = ("tests/rlm/workers/test_h24_worker_process.py",)
ACCEPTING = Target("rlm/proxy/listening.py", _PROCESSES)
WORKER = Target("rlm/workers/worker.py", _PROCESSES)
_CORE = ("tests/rlm/service/test_h24_core.py",)
PROCESSES_SEEN = Target("rlm/workers/processes.py", _CORE)
CLIENTS = Target("rlm/service/clients.py", _CORE)
LIFETIME = Target("rlm/service/lifetime.py", _CORE)
ENDING = Target("rlm/service/lifetime.py", ("tests/rlm/workers/test_ending.py",))
BROKER_SERVICE = Target("rlm/service/broker_service.py", _CORE)

EDITS: tuple[Edit, ...] = (
    *FRAMES.edits(
        (
            "frames that follow the end of a connection are received",
            "while self.is_open and len(self._held)",
            "while len(self._held)",
        ),
        (
            "G10: all that wait for a queue send at once",
            "        while not self._may_write.is_set():\n",
            "        if not self._may_write.is_set():\n",
        ),
        (
            "G10: all that wait for a queue send once a part of it was taken",
            "        if self._writer is None or not self._writer.untaken_bytes:\n",
            "        if True:\n",
        ),
        (
            "G9: pieces of raw bytes are handed over in another order",
            "self._raw = tuple(self._rooms)",
            "self._raw = tuple(reversed(self._rooms))",
        ),
        (
            "G9: raw bytes are received over those before them",
            "self._rooms.appendleft(room[size_bytes:])",
            "self._rooms.appendleft(room)",
        ),
        (
            "G9: who has records can write to them",
            "view.toreadonly() for view in raw",
            "view for view in raw",
        ),
        (
            "H36: a frame that broke off keeps its memory",
            "self._writer = self._transport = None\n        self._drop_raw()\n",
            "self._writer = self._transport = None\n",
        ),
        (
            "H36: chunks wait for a worker without a bound",
            "self._writer.untaken_bytes > _QUEUE_BYTES:",
            "self._writer.untaken_bytes > _MAX_RAW_BYTES:",
        ),
        (
            "what was sent before the end of a connection is lost",
            "            self._writer.finish()\n",
            "            self._writer.drop()\n            self._transport.close()\n",
        ),
    ),
    *MESSAGES.edits(
        (
            "H15: a range without records is lost on the way to a worker",
            "empty=(pb.OffsetRun(start=start, end=end) for start, end in view.empty),",
            "empty=(),",
        ),
        (
            "H25: an error of a later version skips records",
            "return Unavailable(message.message) if kind is None else",
            "return Internal(message.message) if kind is None else",
        ),
        (
            "H24: a refusal whose text is no Unicode stops all views",
            'refusal=_sendable(mirrored.refusal or ""),',
            'refusal=mirrored.refusal or "",',
        ),
        (
            "H24: an error whose text is no Unicode ends the core",
            'return text.encode("utf-8", "backslashreplace").decode("utf-8")',
            "return text",
        ),
    ),
    *VIEWS.edits(
        (
            "H17: workers are ready before the first whole comparison",
            "        self._is_ready = False\n        self._listeners",
            "        self._is_ready = True\n        self._listeners",
        ),
        (
            "H17: what is gone is shown for ever",
            "        self._drop(self._shown.keys() - set(self._source.partitions()))\n",
            "",
        ),
    ),
    *VIEWS.edits(
        (
            "H17: what could not be sent once is never sent",
            "        changed = [view_message(one) for one in new.values()]\n"
            "        self._shown.update(new)  # what cannot be sent is not shown\n",
            "        self._shown.update(new)\n"
            "        changed = [view_message(one) for one in new.values()]\n",
        ),
    ),
    *BARRIERS.edits(
        (
            "H17: an answer comes before the view that it carries",
            "        self._show([mirrored], ())\n",
            "",
        ),
    ),
    *MIRROR.edits(
        (
            "H17: a worker keeps the partitions of the core of before",
            "            self._now = _Shown()\n",
            "            self._now.names.clear()\n",
        ),
        (
            "H17: what a core of before has shown is never dropped",
            "            self._before = None\n",
            "            self._before = self._before or None\n",
        ),
        (
            "H22: log starts change to local ones until the next core is ready",
            "            self._before = self._before or self._now\n",
            "",
        ),
    ),
    *CORE.edits(
        (
            "H24: others may use the socket of the core",
            "    before = os.umask(0o177)\n",
            "    before = os.umask(0o022)\n",
        ),
        (
            "H24: views fill the memory of the core for a worker that has stopped",
            "if not self.frames.is_full:",
            "if self.frames.is_open:",
        ),
        (
            "H24: a worker that has taken nothing for a while misses views",
            "        if self._has_missed_views and self.frames.is_open:\n",
            "        if self._has_missed_views and self.frames.is_full:\n",
        ),
        (
            "a worker of another protocol is greeted",
            "        if protocol is None:\n",
            "        if protocol == 0:\n",
        ),
        (
            "a call that nobody waits for goes on in the core",
            "            if call is not None:\n                call.cancel()\n",
            "            if call is None:\n                return\n",
        ),
    ),
    *REMOTE_CORE.edits(
        (
            "H24: calls wait for a core that is gone",
            "            self._fail_calls()\n",
            "",
        ),
        (
            "H17: a worker without its core vouches for its views",
            "return self._mirror.ready and self.is_connected",
            "return self._mirror.partition is not None",
        ),
    ),
    *REMOTE_CORE.edits(
        (
            "H36: calls fill the memory of a worker whose core has stopped",
            "        if self._link.is_full:\n",
            "        if self._link.is_full and not self._link.is_open:\n",
        ),
        (
            "H36: counts fill the memory of a worker whose core has stopped",
            "self._link is not None and self.is_connected and not self._link.is_full",
            "self._link is not None and self.is_connected",
        ),
    ),
    *REMOTE_CORE.edits(
        (
            "H36: a read that was begun and is dropped goes on in the core",
            "        except BaseException:\n            if self._calls.pop(",
            "        except asyncio.CancelledError:\n            if self._calls.pop(",
        ),
        (
            "H36: one read takes the room of all",
            "min(request.max_bytes, self._memory.most_of_a_read_bytes)",
            "request.max_bytes",
        ),
    ),
    *CONNECTED.edits(
        (
            "H24: what was counted goes to a connection that has ended",
            "self._link is not None and self._link.is_open and self._has_greeted",
            "self._link is not None and self._has_greeted",
        ),
    ),
    *COUNTS.edits(
        (
            "H23: historical bytes are counted twice",
            "        self.spliced_by_client.clear()\n",
            "",
        ),
        (
            "a worker that is gone still has remote reads",
            "        self._purgatory.pop(worker, None)\n",
            "        self._purgatory.get(worker)\n",
        ),
    ),
    *QUOTAS.edits(
        (
            "H23: a wait that has ended holds a client",
            "            self._until_ms.pop(name, None)\n",
            "",
        ),
        (
            "H23: bytes are reported a second late",
            "        self._report()\n",
            "",
        ),
    ),
    *MEMORY.edits(
        (
            "H36: a read reserves less than its answer takes",
            "        size_bytes = _taken_bytes(size_bytes)\n",
            "",
        ),
        (
            "H36: what has gone counts for ever",
            "        weakref.finalize(piece, self.free, taken_bytes).atexit = False\n",
            "",
        ),
        (
            "H36: a read passes those that wait",
            "if self._waiting or not self._fits(size_bytes):",
            "if not self._fits(size_bytes):",
        ),
        (
            "H36: a read that was begun and is dropped keeps its room",
            "            except BaseException:  # a read that nobody waits for any more",
            "            except asyncio.CancelledError:  # a read that nobody waits for any more",
        ),
        (
            "H36: room of a read that was cancelled is lost",
            "                    self.free(size_bytes)\n",
            "                    self.free(0)\n",
        ),
    ),
    *CHILDREN.edits(
        (
            "H24: a worker ends for a successor that has died",
            "        return self.is_ready and self.status is None\n",
            "        return self._changed.is_set()\n",
        ),
        (
            "H24: a successor that has taken over is ended",
            "            await self._stop_one(before)\n",
            "            await self.restart()\n",
        ),
        (
            "H24: a core that was up and refuses later ends the workers",
            "process.status == _REFUSED_STATUS and not self._has_been_ready",
            "process.status == _REFUSED_STATUS",
        ),
        (
            "H23: a core that refuses its broker late is tried again for ever",
            "        self._has_been_ready = not plan.may_refuse\n",
            "        self._has_been_ready = True\n",
        ),
        (
            "H24: a child that does not stop is waited for",
            "        process.kill()\n",
            "        process.terminate()\n",
        ),
        (
            "H24: a core that hangs in its end is never replaced",
            "            await self._stop_one(self._process)\n",
            "            self._process.terminate()\n",
        ),
        (
            "H24: clients wait for a worker that was steady",
            "        return ran_ms >= _STEADY_MS and",
            "        return ran_ms > _RECENT_MS and",
        ),
        (
            "H24: a core that refuses reads the whole ledger again and again",
            "_STEADY_MS and process.status != _REFUSED_STATUS\n",
            "_STEADY_MS\n",
        ),
        (
            "H24: a child that cannot be started ends the service",
            "        except OSError as error:\n",
            "        except EOFError as error:\n",
        ),
        (
            "H24: two run where a process ends while its successor is started",
            "        if self._process is not before:",
            "        if self._process is before and successor.status is not None:",
        ),
    ),
    *SUPERVISOR.edits(
        (
            "H24: a core that a signal to the group has ended is started again",
            "        self._core.start_no_more()\n",
            "        _ = self._core\n",
        ),
        (
            "H24: a core ends while clients of its workers wait for it",
            "                outer.create_task(self._core.run())\n",
            "                group.create_task(self._core.run())\n",
        ),
    ),
    *LISTENING.edits(
        (
            "clients of a name's other address find nobody",
            "            found.append(listening)\n",
            "            return [listening]\n",
        ),
        (
            "an address of another machine ends the service",
            "            if error.errno not in _NOT_HERE:\n",
            "            if error.errno:\n",
        ),
        (
            "IPv4 clients find nobody beside IPv6",
            "            if family == socket.AF_INET6:\n",
            "            if family == socket.AF_UNIX:\n",
        ),
    ),
    *ACCEPTING.edits(
        (
            "H24: a worker without room takes clients from the others and refuses them",
            "            await self._has_room()\n",
            "",
        ),
    ),
    *WORKER.edits(
        (
            "H24: a worker runs out of descriptors",
            "raise_open_files_limit(_FILES_OF_A_CONNECTION * settings",
            "(_FILES_OF_A_CONNECTION * settings",
        ),
    ),
    *PROCESSES_SEEN.edits(
        (
            "H38: a worker that hangs is not seen",
            "                quiet_ms=now_ms - one.heard_ms,\n",
            "                quiet_ms=0,\n",
        ),
        (
            "H38: a core that keeps ending is not seen",
            "            recent_ends=self._settings.recent_ends,\n",
            "            recent_ends=0,\n",
        ),
    ),
    *CLIENTS.edits(
        (
            "H24: a core without workers by its new settings takes their address",
            "    if core is not None:\n",
            "    if shared.config.proxy_workers:\n",
        ),
        (
            "H13: services with one state dir share a socket",
            'f"{config.cluster_id}-{config.node_id}.sock"',
            '"core.sock"',
        ),
    ),
    *LIFETIME.edits(
        (
            "H24: a second signal cuts the end of a core short",
            '        loop.add_signal_handler(number, log.info, "already_stopping")\n',
            "        loop.add_signal_handler(number, serving.cancel)\n",
        ),
    ),
    *ENDING.edits(
        (
            "H24: the plugin ends before the clients have their answers",
            "            await drain()\n",
            "            _ = drain\n",
        ),
    ),
    *BROKER_SERVICE.edits(
        (
            "H23: a core says that it is ready before it knows its broker",
            "        await self._check_broker()\n        self._started()\n",
            "        self._started()\n        await self._check_broker()\n",
        ),
    ),
)
