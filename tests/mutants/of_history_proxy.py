"""Planted bugs in what Kafka clients of an attached reader are answered."""

from tests.mutants.edits import Edit, Target

_PROXY = "tests/rlm/history_proxy/test_history_proxy.py"
_CONNECTIONS = "tests/rlm/history_proxy/test_listener.py"
_GROUP = "tests/rlm/history_proxy/test_group.py"
_GROUPS = "tests/rlm/history_proxy/test_groups.py"
_COMMITTED = "tests/rlm/history_proxy/test_committed.py"
_SETTINGS = "tests/rlm/cli/test_attach.py"
ANSWERS = Target("rlm/history_proxy/answers.py", (_PROXY, _CONNECTIONS))
READING = Target("rlm/remote_log/remote_only.py", (_PROXY, "tests/rlm/api/test_h04_attached.py"))
STATE = Target("rlm/remote_log/remote_state.py", ("tests/rlm/api/test_h04_attached.py",))
LISTENER = Target("rlm/history_proxy/listener.py", (_CONNECTIONS,))
GROUP = Target("rlm/history_proxy/group.py", (_GROUP,))
COORDINATOR = Target("rlm/history_proxy/coordinator.py", (_GROUPS,))
COMMITTED = Target("rlm/history_proxy/committed.py", (_COMMITTED,))
RULES = Target("rlm/config/rules.py", (_SETTINGS,))

EDITS: tuple[Edit, ...] = (
    *ANSWERS.edits(
        (
            "H04: an offset beyond a doubtful end is out of range, and a client resets",
            "        if offset >= state.next_offset:\n            state.refuse",
            "        if offset == state.next_offset:\n            state.refuse",
        ),
        (
            "H04: a doubtful end is an end for a client that may read nothing now",
            "        if offset >= state.next_offset:\n            state.refuse",
            "        if offset > state.next_offset:\n            state.refuse",
        ),
        (
            "H17: what was not read yet is no topic",
            "code = LEADER_NOT_AVAILABLE if error.retriable else unknown",
            "code = unknown",
        ),
        (
            "H17: what was not read yet is out of range",
            "code = NOT_LEADER_OR_FOLLOWER if error.retriable",
            "code = OFFSET_OUT_OF_RANGE if error.retriable",
        ),
        (
            "H04: an error comes with an end",
            '        "high_watermark": _UNKNOWN,\n',
            '        "high_watermark": 0,\n',
        ),
        (
            "H09: read_committed sees aborted records",
            "                if read_committed:\n                    row[",
            "                if not read_committed:\n                    row[",
        ),
        (
            "a batch larger than the limit is never given",
            "                    most = max(most, 1)",
            "                    most = max(most, 0)",
        ),
        (
            "a client gives up a request of many slow partitions, and asks for all of it again",
            ">= MOST_WAIT_MS:\n                    most = 0",
            "< 0:\n                    most = 0",
        ),
        (
            "quotas of Kafka clients do not count",
            "                if not may_read or ",
            "                if ",
        ),
        (
            "H36: each of many topics is searched for among all partitions",
            "        if len(asked) > 1:\n",
            "        if not asked:\n",
        ),
        (
            "a request by the fetch session of a broker that is gone gets the partitions it names",
            '        if request["session_epoch"] not in _WITHOUT_SESSION:\n',
            '        if request["session_epoch"] == 0:\n',
        ),
        (
            "records that clients are given are not counted",
            "        self._metrics.spliced(given_bytes)\n",
            "        self._metrics.spliced(0)\n",
        ),
        (
            "an empty answer comes at once, and again",
            'max(0, min(request["max_wait_ms"], MOST_WAIT_MS) - waited_ms)',
            "0",
        ),
    ),
    *READING.edits(
        (
            "H04: a doubtful end is the latest offset, and what follows is left out",
            "        if timestamp in _OF_THE_END:\n",
            "        if timestamp not in _OF_THE_END:\n",
        ),
    ),
    *STATE.edits(
        (
            "H04: Spark takes what is before a doubtful end for all there was",
            "for one in self.doubts if one.next_offset > end)",
            "for one in self.doubts if one.next_offset < end)",
        ),
    ),
    *LISTENER.edits(
        (
            "a connection that has just begun outlives the listener",
            "        for client in tuple(self._open):  # of a task",
            "        for client in ():  # of a task",
        ),
        (
            "H36: connections are not bounded",
            "        if len(self._open) >= MOST_CONNECTIONS:\n",
            "        if len(self._open) > 2 * MOST_CONNECTIONS:\n",
        ),
    ),
    *LISTENER.edits(
        (
            "H36: clients without a certificate read where certificates are required",
            "        if self._contexts is None:\n",
            "        if self._handshake_timeout_ms:\n",
        ),
        (
            "a broken frame is counted as something else",
            "            return _CAUSES.get(type(error)",
            "            return {}.get(type(error)",
        ),
    ),
    *GROUP.edits(
        (
            "a member of a former generation commits over the one that reads now",
            "        return NONE if generation == self._generation else ILLEGAL_GENERATION",
            "        return NONE if generation else ILLEGAL_GENERATION",
        ),
        (
            "a commit without a member goes over those of members",
            "            return UNKNOWN_MEMBER_ID if self._members else NONE",
            "            return NONE",
        ),
        (
            "a commit is taken while partitions change hands",
            "        if self.state is GroupState.COMPLETING:\n            return REBALANCE",
            "        if self.state is GroupState.EMPTY:\n            return REBALANCE",
        ),
        (
            "a member that is gone keeps its partitions",
            "            if (one.expires_ms <= now_ms and not one.is_waiting)",
            "            if (one.expires_ms < 0 and not one.is_waiting)",
        ),
        (
            "a group waits for ever for a leader that does not say who has what",
            "            or (has_not_synced and one.sync is None)",
            "            or (has_not_synced and one.expires_ms < 0)",
        ),
        (
            "members that have not joined are in the new generation",
            "for key, one in self._members.items() if one.join is not None}",
            "for key, one in self._members.items()}",
        ),
        (
            "a rebalance begins with its time over, and members lose their place",
            "        if self.state is GroupState.PREPARING and now_ms >= self._deadline_ms:",
            "        if self.state is GroupState.PREPARING:",
        ),
    ),
    *COORDINATOR.edits(
        (
            "H17: a group that has read starts anew while the manifests are not read",
            "            early = unknown if unknown == COORDINATOR_LOAD_IN_PROGRESS else NONE\n",
            "            early = NONE\n",
        ),
        (
            "H17: a group starts anew where all segments of a partition have expired",
            "        key = None if topic_id is None else PartitionKey(topic_id, partition)\n",
            "        key = None if topic_id is None else PartitionKey(topic_id, partition)\n"
            "        if key is not None and not self._view.is_there(key):\n"
            "            key = None\n",
        ),
        (
            "offsets of a partition that has ended are refused, and its group cannot commit",
            "                if key not in before and not self._view.is_there(key):\n",
            "                if not self._view.is_there(key):\n",
        ),
        (
            "members that work longer than their session lose their partitions",
            "            rebalance_timeout_ms=wait_ms if wait_ms >= 0 else session_ms,\n",
            "            rebalance_timeout_ms=session_ms,\n",
        ),
        (
            "H36: names of protocols are not counted",
            'sum(len(one["name"]) + len(one["metadata"])',
            'sum(len(one["metadata"])',
        ),
        (
            "H36: members of groups are not bounded",
            "for one in self._groups.values()) >= MOST_MEMBERS",
            "for one in self._groups.values()) > 9 * MOST_MEMBERS",
        ),
        (
            "H36: groups without members are kept for ever",
            "for key, one in self._groups.items() if one.size}",
            "for key, one in self._groups.items()}",
        ),
    ),
    *COMMITTED.edits(
        (
            "a commit is answered before it is in its file",
            "            error = await self._failure(merged)\n",
            "            error = None\n",
        ),
        (
            "a crash of the machine takes back a commit that was answered",
            "_encode(group_id, offsets))\n                sync_path(self._folder)\n",
            "_encode(group_id, offsets))\n",
        ),
        (
            "a crash of the machine takes back an offset that a group was given",
            "            sync_path(self._folder)  # a file",
            "            # a file",
        ),
        (
            "a write that hung replaces a later one",
            "            if number < self._written:\n",
            "            if number < 0:\n",
        ),
        (
            "commits that are written together are lost but for the last",
            "                before = merged.get(one.group_id, self.of(one.group_id))\n",
            "                before = _NOTHING\n",
        ),
        (
            "what could not be written counts as committed",
            "            if error is None:\n                self._groups |= merged",
            "            if wanted:\n                self._groups |= merged",
        ),
    ),
    *RULES.edits(
        (
            "everybody on the network reads the history",
            "    if not listen.is_private:\n",
            "    if listen.is_unix:\n",
        ),
        (
            "the rights of the API are passed by",
            '{listen}"\n    if config.api_principals_file is not None:\n',
            '{listen}"\n    if config.api_principals_file == 0:\n',
        ),
        (
            "the token of the API is passed by",
            "        if getattr(config, name) is not None:\n",
            "        if getattr(config, name) == 0:\n",
        ),
    ),
)
