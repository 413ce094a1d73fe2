"""Planted bugs in what brings a lost ledger back: proof, order, and what must not come back."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/ledger_rebuild.py", ("tests/rlm/plans/test_h06_ledger_rebuild.py",))
TASK = Target("rlm/tasks/ledger_rebuild.py", ("tests/rlm/tasks/test_h06_ledger_rebuild.py",))
SURVEY = Target("rlm/tasks/store_survey.py", ("tests/rlm/tasks/test_h06_ledger_rebuild.py",))
LOG = Target("rlmm/metadata_log.py", ("tests/rlmm/test_metadata_log.py",))
CONNECTION = Target("rlm/stores/connection.py", ("tests/rlm/stores/test_store_connection.py",))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "H6: what the ledger has is written again",
            "if one.metadata.segment_id.id not in known.ledger.entries]\n    whole",
            "if one.metadata.segment_id.id]\n    whole",
        ),
        (
            "H6: a segment without its objects comes back",
            "whole = [one.metadata for one in new if not one.broken]",
            "whole = [one.metadata for one in new]",
        ),
        (
            "H2: objects are taken over without a remote log start",
            "return why if needs_start else None",
            "return None",
        ),
        (
            "H6: nothing comes back where the settings have lost the remote log start, too",
            "return why if needs_start else None",
            "return why",
        ),
        (
            "H2: a start that the settings have lost is not noticed",
            "    if highest > start:\n",
            "    if highest > start + 100:\n",
        ),
        (
            "a topic that the settings do not know comes back",
            "    if not known.is_topic_known:\n",
            "    if known.is_topic_known is None:\n",
        ),
        (
            "a partition whose deletion is recorded comes back",
            "    if known.ledger.deletion_problem is not None:\n",
            "    if known.ledger.deletion_problem == '':\n",
        ),
        (
            "H3: records are written under an epoch that is over",
            "    return max([ledger.newest_epoch, *epochs])\n",
            "    return max([0, *epochs])\n",
        ),
        (
            "gaps are not named",
            "        gaps=_gaps(finished, start, known.holes),\n",
            "",
        ),
    ),
    *TASK.edits(
        (
            "H12: the ledger is not read past a barrier",
            "            await self._ledger.barrier(key, self._barrier_deadline_ms)\n",
            "            assert key\n",
        ),
        (
            "H2: the settings are not read past a barrier",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n",
            "",
        ),
        (
            "H12: objects are not asked for after the barrier",
            "        for at in range(0, len(unlisted), _ASKED_AT_ONCE):\n",
            "        for at in range(0, 0, _ASKED_AT_ONCE):\n",
        ),
        (
            "H6: settings with records that cannot be read count",
            "    if view.problem is not None:\n",
            "    if view.problem == '':\n",
        ),
        (
            "H6: settings of another cluster count",
            "    if cluster.cluster_id != cluster_id:\n",
            "    if not cluster.cluster_id:\n",
        ),
        (
            "H6: a settings topic that was created again counts",
            "    if cluster.settings_topic_id != settings_topic_id:\n",
            "    if not settings_topic_id:\n",
        ),
        (
            "H6: what lies in a store that was not surveyed is left out unnoticed",
            "- surveyed.keys() - set(without)\n",
            "& surveyed.keys() - set(without)\n",
        ),
    ),
    *SURVEY.edits(
        (
            "H11: another store is surveyed",
            "        await self._check_identity(store, store_id)\n        found = ",
            "        found = ",
        ),
        (
            "H11: a store that changed during the survey counts",
            "        await self._check_identity(store, store_id)\n        return found",
            "        return found",
        ),
        (
            "H12: a manifest of another cluster or store counts",
            "if (manifest.cluster_id, manifest.store_id) != (self._cluster_id, store_id):",
            "if not manifest.cluster_id:",
        ),
        (
            "H12: a manifest counts under the name of another segment",
            "metadata.segment_id != manifest.remote_segment_id or named != inside",
            "metadata.segment_id != manifest.remote_segment_id",
        ),
        (
            "H12: a manifest counts that publishes another segment",
            "if metadata.segment_id != manifest.remote_segment_id or named",
            "if named",
        ),
        (
            "H12: a manifest counts that publishes other offsets",
            " or not is_same:",
            ":",
        ),
        (
            "H6: a manifest publishes a segment that is not finished",
            "        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:\n",
            "        if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:\n",
        ),
    ),
    *LOG.edits(
        (
            "H6: any ledger that was created again is taken for a rebuilt one",
            "        elif recorded == found[0]:\n",
            "        elif recorded != ledger:\n",
        ),
        (
            "H6: settings that were created again name the ledger",
            "        settings.check(await self._describe(SETTINGS_TOPIC))\n"
            "        self._refuse_unfit(SETTINGS_TOPIC)\n        recorded",
            "        assert settings\n        recorded",
        ),
        (
            "H6: a process that has read one ledger goes on with another",
            "        is_settled = self._has_begun or self._any_ledger\n",
            "        is_settled = self._any_ledger\n",
        ),
        (
            "H6: a service that remembers nothing takes any ledger for its own",
            "            ledger.topic_id = recorded\n",
            "            ledger.topic_id = None\n",
        ),
        (
            "H42: a loss of settings is forgotten with that of the ledger",
            "        if self._lost_topics_earlier == {LEDGER_TOPIC}:\n",
            "        if LEDGER_TOPIC in self._lost_topics_earlier:\n",
        ),
        (
            "H42: what was read of the lost ledger counts against the rebuilt one",
            "        self._tail.forget(LEDGER_TOPIC)\n",
            "",
        ),
    ),
    *CONNECTION.edits(
        (
            "H6: a service that names its default store names the ledger, too",
            "            await settings.publish(replace(cluster, default_store_id=store_id))\n",
            "            ids = self._memory.metadata.topic_ids\n"
            "            await settings.publish(\n"
            "                replace(cluster, default_store_id=store_id, ledger_topic_id=ids['"
            "__rlm_remote_log_metadata'])\n            )\n",
        ),
    ),
)
