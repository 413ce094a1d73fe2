"""Planted bugs of `rlm restore`: records that come twice, not at all, changed, or among others."""

from tests.mutants.edits import Edit, Target

_RUNS = ("tests/rlm/restore/test_restore.py",)
BATCHES = Target("rlm/restore/batches.py", ("tests/rlm/restore/test_batches.py",))
TRANSACTIONS = Target("rlm/restore/transactions.py", _RUNS)
TARGET = Target("rlm/restore/target.py", _RUNS)
RUN = Target("rlm/restore/run.py", _RUNS)
ABORTED = Target("kip405/aborted.py", _RUNS)
SOURCE = Target("rlm/restore/source.py", _RUNS)

EDITS: tuple[Edit, ...] = (
    *BATCHES.edits(
        (
            "a damaged batch gets a checksum that is right",
            "        check_crc(batch, 0, header)\n",
            "",
        ),
        (
            "aborted records come back",
            "return not any(first <= header.base_offset <= last for first, last in spans)",
            "return bool(spans) or True",
        ),
        (
            "records get the time at which they were restored",
            "if is_dense and has_own_times and header.base_offset >= from_offset:",
            "if is_dense and header.base_offset >= from_offset:",
        ),
        (
            "deleted records, or those restored before, come with the rest of their batch",
            "if is_dense and has_own_times and header.base_offset >= from_offset:",
            "if is_dense and has_own_times:",
        ),
        (
            "what was cut from a batch is passed",
            "            yield made.built(made.next_offset)\n",
            "            yield made.built(header.next_offset)\n",
        ),
        (
            "records without a time get that of another one",
            "        _TIMES.pack_into(data, _TIMES_AT, self._begin_ms, self._max_ms)\n",
            "        _TIMES.pack_into(data, _TIMES_AT, max(self._begin_ms, 0), self._max_ms)\n",
        ),
    ),
    *TRANSACTIONS.edits(
        (
            "a progress that is about to be replaced is believed",
            '"require_stable": True',
            '"require_stable": False',
        ),
        (
            "others who write meanwhile are not noticed",
            "                self._refuse_others(base)\n",
            "",
        ),
        (
            "progress is committed by a transaction of its own",
            "            count, target_offset = await self._produce(batches, target_offset)\n",
            "            count, target_offset = await self._produce(batches, target_offset)\n"
            "            await self._end()\n",
        ),
    ),
    *TRANSACTIONS.edits(
        (
            "a transaction takes longer than brokers allow",
            "            if self._clock.monotonic_ms() - begun_ms >= _WRITING_MS:\n",
            "            if begun_ms < 0:\n",
        ),
        (
            "what a transaction had no time for is passed",
            "            source_offset = written[-1].next_offset\n",
            "            source_offset = batches[-1].next_offset\n",
        ),
    ),
    *TARGET.edits(
        (
            "restored records are old, and deleted at once",
            "    if remarks and not allows_retention:\n",
            "    if remarks and allows_retention:\n",
        ),
        (
            "records come behind those of somebody else",
            "    if progress is None and log_end > 0:\n",
            "    if progress is None and log_start > log_end:\n",
        ),
        (
            "records come again where the restored ones were deleted and the progress expired",
            "    if progress is None and log_end > 0:\n",
            "    if progress is None and log_start < log_end:\n",
        ),
        (
            "records come behind their own originals",
            "    if target.topic_id == target.source_topic_id:\n",
            "    if target.topic_id is None:\n",
        ),
        (
            "a target that has lost records is completed",
            "log_end < progress.target_offset:",
            "log_end < 0:",
        ),
        (
            "a topic that stamps records is taken",
            'if configs.get("message.timestamp.type", "CreateTime") != "CreateTime":',
            'if configs.get("message.timestamp.type", "CreateTime") == "":',
        ),
        (
            "what was aborted counts as written by others",
            "not header.is_control and not is_aborted:",
            "not header.is_control:",
        ),
    ),
    *ABORTED.edits(
        (
            "what a producer commits behind an aborted attempt counts as aborted",
            "                self._open.discard(header.producer_id)\n",
            "                pass\n",
        ),
    ),
    *RUN.edits(
        (
            "a topic is refused whose restore was killed in its first transaction",
            "            return await session.commit(first)\n",
            "            session.progress = first\n            return first\n",
        ),
        (
            "records that the source has lost meanwhile are passed in silence",
            "if progress.source_offset < start_of(plan) and not self._wanted.skips_holes:",
            "if progress.source_offset < 0 and not self._wanted.skips_holes:",
        ),
        (
            "an older progress of the same command is believed",
            "(found is not None and found.source_offset >= known.source_offset)",
            "found is not None",
        ),
        (
            "holes are passed in silence",
            "    if holes and not wanted.skips_holes:\n",
            "    if wanted.skips_holes and not holes:\n",
        ),
    ),
    *SOURCE.edits(
        (
            "transactions end as another history has it",
            "        if not _is_cut(piece) and not open_at(own, piece.next_offset):\n",
            "        if own is not None:\n",
        ),
        (
            "how a transaction ended is guessed",
            "            return None if _is_cut(piece) else own\n",
            "            return own\n",
        ),
        (
            "the last batch of a portion is passed",
            "yield Portion(batches=tuple(taken), next_offset=batch.next_offset)",
            "yield Portion(batches=tuple(taken[:-1]), next_offset=batch.next_offset)",
        ),
    ),
)
