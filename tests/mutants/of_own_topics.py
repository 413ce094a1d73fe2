"""Planted bugs in what keeps clients of the proxy off the service's own topics."""

from tests.mutants.edits import Edit, Target

_PROXY = ("tests/rlm/proxy/test_own_topics.py", "tests/rlm/proxy/test_own_topic_ids.py")
SCANNER = Target(
    "kafka_protocol/produce_request.py", ("tests/kafka_protocol/test_produce_request.py",)
)
ANSWERS = Target("kafka_protocol/produce.py", ("tests/kafka_protocol/test_produce_request.py",))
RULES = Target("rlm/proxy/own_topics.py", _PROXY)
TABLES = Target("kafka_protocol/apis/topics.py", ("tests/kafka_protocol/test_api_versions.py",))
SESSION = Target("rlm/proxy/session.py", _PROXY)
CHANGES = Target("rlm/proxy/topic_changes.py", _PROXY)
TOPICS = Target("rlmm/topic.py", ("tests/rlmm/test_metadata_log.py",))
IDS = Target("rlm/service/clients.py", _PROXY)
DELETES = Target("rlm/proxy/delete_records.py", _PROXY)
FEED = Target("rlm/workers/views.py", ("tests/rlm/workers/test_views.py",))
MIRROR = Target("rlm/workers/mirror.py", ("tests/rlm/workers/test_views.py",))
_REMEMBERED = ("tests/rlm/service/test_own_topic_ids.py",)
REMEMBERED = Target("rlm/service/metadata.py", _REMEMBERED)
SUPERVISED = Target("rlm/service/supervised.py", _REMEMBERED)

EDITS: tuple[Edit, ...] = (
    *TABLES.edits(
        (
            "DeleteTopics of old clients, which brokers before 4.0 take, ends their connection",
            '    "0-6",\n',
            '    "1-6",\n',
        ),
    ),
    *SCANNER.edits(
        (
            "records of a refused partition are written",
            "                _INT32.pack_into(reader.buffer, index_at, spoiled(index))\n",
            "                pass\n",
        ),
        (
            "an index that is no partition becomes one",
            "            if index >= 0:\n",
            "            if True:\n",
        ),
        (
            "a topic behind a refused one is refused",
            "        self._is_topic_refused = self._is_refused(topic)\n",
            "        self._is_topic_refused = self._is_topic_refused or self._is_refused(topic)\n",
        ),
        (
            "H36: a head without end is kept for ever",
            " or len(view) - passed_bytes > MAX_HEAD_BYTES:",
            ":",
        ),
        (
            "what is left of a frame counts as the next one",
            "(self._part is Part.END) != (self.left_bytes == 0):",
            "False:",
        ),
    ),
    *ANSWERS.edits(
        (
            "an index that the client does not know is answered",
            "_INDEX_AND_ERROR.pack(spoiled(index), ",
            "_INDEX_AND_ERROR.pack(index, ",
        ),
        (
            "answers about topics of others are changed",
            "        if is_refused and index < 0:\n",
            "        if index < 0:\n",
        ),
        (
            "answers about partitions that are there are changed",
            "        if is_refused and index < 0:\n",
            "        if is_refused:\n",
        ),
    ),
    *RULES.edits(
        (
            "only one of our topics is refused",
            "        is_named = name is not None and name.startswith(PREFIX)\n",
            '        is_named = name is not None and name == PREFIX + "settings"\n',
        ),
        (
            "our topics are written by their ids",
            "        return len(topic) == _ID_BYTES and bytes(topic) in self._known()\n",
            "        return False\n",
        ),
        (
            "our topics are deleted by their ids",
            "        return is_named or (topic_id is not None and topic_id in self._known())\n",
            "        return is_named\n",
        ),
        (
            "requests with ids pass before our ids are known",
            "        return None if self._known() else _HIGHEST_WITHOUT_IDS.get(api_key)\n",
            "        return None\n",
        ),
        (
            "by its new id anybody writes to a topic of ours that was recreated meanwhile",
            "        return None if self.ids() else _HIGHEST_WITHOUT_IDS.get(api_key)\n",
            "        return None if self._known() else _HIGHEST_WITHOUT_IDS.get(api_key)\n",
        ),
        (
            "H24: a client that remembers versions is cut off until our ids are seen",
            "        return self.ids() or self.remembered\n",
            "        return self.ids()\n",
        ),
        (
            "remembered ids count on when ours are seen",
            "        return self.ids() or self.remembered\n",
            "        return self.remembered or self.ids()\n",
        ),
        (
            "a short Produce is not looked at",
            "        return _PREFIX_BYTES in frame or any(one in frame for one in self._known())\n",
            "        return False\n",
        ),
        (
            "a short Produce is not looked at for ids",
            "        return _PREFIX_BYTES in frame or any(one in frame for one in self._known())\n",
            "        return _PREFIX_BYTES in frame\n",
        ),
    ),
    *SESSION.edits(
        (
            "only a short Produce is looked at",
            "        return not is_whole or self._own_topics",
            "        return is_whole and self._own_topics",
        ),
        (
            "a version that is not offered passes",
            "    if is_too_new or not is_offered(api_key, api_version):\n",
            "    if not is_offered(api_key, api_version):\n",
        ),
        (
            "a client makes our topics, with settings of its own",
            "        CREATE_TOPICS.key,\n",
            "",
        ),
        (
            "a marker of a transaction is written into our topics",
            "        WRITE_TXN_MARKERS.key,\n",
            "",
        ),
        (
            "answers of old versions show an index that the client does not know",
            "            intercept = Intercept.PRODUCE\n",
            "            intercept = Intercept.PRODUCE if api_version > 4 else intercept\n",
        ),
        (
            "H24: a shutdown cuts a Produce between two partitions",
            "        return self._passing_bytes + left_bytes\n",
            "        return self._passing_bytes\n",
        ),
    ),
    *CHANGES.edits(
        (
            "each refusal is logged, as often as a client likes",
            "            self._is_logged = True\n",
            "",
        ),
        (
            "refused partitions are not counted",
            '            self._metrics.answered("produce", REFUSED)\n',
            "            pass\n",
        ),
        (
            "changes of our topics go to the broker",
            "                refused.append(row)\n",
            "                refused.append(row)\n                kept[field].append(one)\n",
        ),
        (
            "a refusal is answered as done",
            '"error_code": TOPIC_AUTHORIZATION_FAILED, **message}',
            '"error_code": 0, **message}',
        ),
        (
            "a broker's configuration is taken for that of a topic",
            '    if one["resource_type"] != TOPIC_RESOURCE:\n        return None\n',
            "",
        ),
        (
            "a transaction ends in our topics",
            "        if not ours:\n            await pass_on(taken",
            "        if ours:\n            await pass_on(taken",
        ),
        (
            "a client is not told of what was refused",
            "        response[changing.answers] += changing.refusals(refused, version)\n",
            "",
        ),
    ),
    *CHANGES.edits(
        (
            "a marker for our topics goes to the broker",
            "            (ours if own_topics.has",
            "            (ours if not own_topics.has",
        ),
        (
            "a marker that is for other topics too is not written there",
            "        if others or not ours:\n",
            "        if not ours:\n",
        ),
        (
            "a producer whose markers are refused in part is answered twice",
            "        if producer_id not in by_producer:\n",
            "        if True:\n",
        ),
        (
            "a marker that was refused is answered as written",
            '"error_code": TOPIC_AUTHORIZATION_FAILED}\n        for index in topic["partition_',
            '"error_code": 0}\n        for index in topic["partition_',
        ),
    ),
    *TOPICS.edits(
        (
            "a topic of ours that was recreated is not known by its id",
            "        now = settings.topic_id, settings.present_id, ledger.topic_id, ledger",
            "        now = settings.topic_id, ledger.topic_id, settings.present_id, settings",
        ),
        (
            "ids of an earlier process count, whatever topics there are now",
            "        if settings.present_id is None or ledger.present_id is None:\n",
            "        if settings.topic_id is None or ledger.topic_id is None:\n",
        ),
        (
            "the ids of one topic count for both",
            "        if settings.present_id is None or ledger.present_id is None:\n",
            "        if settings.present_id is None:\n",
        ),
    ),
    *IDS.edits(
        (
            "a topic of ours that was recreated is written by its id until the next start",
            "        if now is not known:\n",
            "        if not raw:\n",
        ),
    ),
    *DELETES.edits(
        (
            "records of our topics are deleted",
            "        if not self._own_topics.has(one.topic, None):\n",
            "        if not self._own_topics.has(None, None):\n",
        ),
    ),
    *FEED.edits(
        (
            "workers do not learn the ids of our topics",
            "            self._send(pb.Views(ready=self._is_ready, own_topic_ids=ids))\n",
            "            pass\n",
        ),
        (
            "a worker that comes later does not learn them",
            "            own_topic_ids=self._ids,\n",
            "",
        ),
    ),
    *MIRROR.edits(
        (
            "a worker forgets the ids of our topics with the next view",
            "        if views.own_topic_ids:\n",
            "        if True:\n",
        ),
        (
            "a worker keeps the ids that it has learnt first",
            "self.own_topic_ids = frozenset(views",
            "self.own_topic_ids = self.own_topic_ids or frozenset(views",
        ),
    ),
    *REMEMBERED.edits(
        (
            "one of our topics counts as both",
            "if both <= found.keys() else frozenset()",
            "if found else frozenset()",
        ),
        (
            "a worker does not begin with ids of our topics that nobody can read",
            'own_topics_not_read", error=str(error))\n        return frozenset()\n',
            'own_topics_not_read", error=str(error))\n        raise\n',
        ),
    ),
    *SUPERVISED.edits(
        (
            "H24: a client that remembers versions is cut off after a restart",
            "proxies=rows, own_topic_ids=own).line()",
            "proxies=rows, own_topic_ids=own[:0]).line()",
        ),
    ),
)
