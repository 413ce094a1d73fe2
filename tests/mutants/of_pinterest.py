"""Planted bugs in the layout `pinterest`: what keeps attempts of one base offset apart."""

from tests.mutants.edits import Edit, Target

_TESTS = ("tests/rsm_plugins/pinterest/test_written.py",)
_WATERMARK_TESTS = "tests/rsm_plugins/pinterest/test_watermark_versions.py"
VIEWS = Target(
    "rsm_plugins/local/views.py", (*_TESTS, "tests/rsm_plugins/pinterest/test_local_views.py")
)
LOCAL = Target("rsm_plugins/local/manager.py", _TESTS)
SEGMENTS = Target("rsm_plugins/s3/pinterest.py", _TESTS)
WATERMARK = Target("rsm_plugins/s3/pinterest.py", (_WATERMARK_TESTS,))
VERSIONS = Target("rsm_plugins/s3/versions.py", _TESTS)
MOVING = Target(
    "rsm_plugins/s3/pinterest.py", ("tests/rsm_plugins/pinterest/test_moving_versions.py",)
)
LATE_WRITERS = Target(
    "rsm_plugins/s3/pinterest.py", ("tests/rsm_plugins/pinterest/test_histories.py",)
)
LATE_VIEWS = Target(
    "rsm_plugins/s3/pinterest.py", ("tests/rsm_plugins/pinterest/test_late_views.py",)
)
CONDITIONS = Target("rsm_plugins/s3/versions.py", ("tests/rsm_plugins/s3/test_conditions.py",))
COST = Target("rsm_plugins/s3/pinterest.py", ("tests/rsm_plugins/pinterest/test_deletion_cost.py",))
MANAGER = Target("rsm_plugins/s3/manager.py", ("tests/rsm_plugins/pinterest/test_histories.py",))
DELETIONS = Target("rsm_plugins/s3/versions.py", (_WATERMARK_TESTS,))
FINDINGS = Target("rsm_plugins/s3/findings.py", _TESTS)

EDITS: tuple[Edit, ...] = (
    *VIEWS.edits(
        (
            "H12: the view of another attempt is removed",
            "            if log is not None and not self._is_own(base, views, locator):\n",
            "            if log is None and not self._is_own(base, views, locator):\n",
        ),
        (
            "the index of one attempt stands beside the log of another after a crash",
            "if not is_own and _is_unlinked(_file(locator, LOG), views):",
            "if not is_own and views < 0:",
        ),
        (
            "offset.wm falls to an older segment",
            "found is not None and found >= locator.start_offset:",
            "found is not None and found == locator.start_offset:",
        ),
        (
            "a complete attempt has no view after another one of its offset was deleted",
            "                heir = self._heir(base, locator)\n",
            "                heir = self._heir(base, locator) if base < 0 else None\n",
        ),
        (
            "offset.wm is lost though a complete attempt has its view again",
            "                        self._raise_watermark(base, heir)",
            "                        self._watermark(base, heir)",
        ),
    ),
    *LOCAL.edits(
        (
            "a deleted segment leaves its views, and its bytes with them",
            "        if views is None:\n            self._remove(",
            "        if views is not locator:\n            self._remove(",
        ),
    ),
    *SEGMENTS.edits(
        (
            "H12: a version of another attempt is read",
            "read_range(version.name, wanted, version.version_id)",
            "read_range(version.name, wanted)",
        ),
        (
            "H12: versions of other attempts are deleted",
            "head.metadata.get(ATTEMPT_KEY) == attempt]",
            "head.metadata.get(ATTEMPT_KEY) != ATTEMPT_KEY]",
        ),
        (
            "H12: an attempt that recorded no version is read from that of another one",
            "head.metadata.get(ATTEMPT_KEY) == _attempt(locator):",
            "head.metadata.get(ATTEMPT_KEY) != ATTEMPT_KEY:",
        ),
        (
            "H12: a writer that was thought dead completes its upload after the deletion",
            "        await end_uploads()\n        # The indexes",
            "        # The indexes",
        ),
        (
            "offset.wm falls to an older segment in S3",
            "                if there > locator.start_offset:\n",
            "                if there > locator.start_offset + 10**6:\n",
        ),
        (
            "H11: a log counts as missing because the settings are others",
            "        if found.key != wanted:\n",
            "        if found.key == name:\n",
        ),
        (
            "H11: a segment whose version is gone is complete",
            "        if head is None:\n            await self._check_gone(",
            "        if head is None and not name:\n            await self._check_gone(",
        ),
        (
            "H6: what stands for a log passes for a log of so few bytes, which others replace",
            "                yield await _with_log_size(own, held)\n            held = None",
            "                yield held\n            held = None",
        ),
        (
            "segments are copied to a bucket that keeps no versions",
            "        await self.versions.check_bucket()\n",
            "",
        ),
    ),
    *CONDITIONS.edits(
        (
            "H10: a server that knows no conditions is found after a copy",
            "        problem = problem or await self.problem_of_conditions()\n",
            "",
        ),
        (
            "H10: a server that passes conditions over counts as one that keeps them",
            "        if is_written:\n            there",
            "        if is_written and body:\n            there",
        ),
    ),
    *WATERMARK.edits(
        (
            "an older watermark comes back when the last one is removed",
            "there[ids.index(before.version_id) :]",
            "there[ids.index(before.version_id) :][:1]",
        ),
        (
            "the watermark of a partition that has ended stays after a crash",
            "        if were_any or any(one.name == reference_name for one in own):\n",
            "        if were_any:\n",
        ),
        (
            "the version that was just written is removed where there are no versions",
            " and watermark.version_id not in _NO_VERSION",
            "",
        ),
    ),
    *MOVING.edits(
        (
            "H11: a version that is listed counts as lost",
            "        if version is not None and version in await",
            "        if version is None and version in await",
        ),
        (
            "H12: a version that a server has moved meanwhile stays when its segment is deleted",
            "            if not theirs or set(theirs).isdisjoint(await",
            "            if tried or set(theirs).isdisjoint(await",
        ),
        (
            "H11: a version that cannot be asked counts as that of another attempt",
            "if not doubtful or doubtful.isdisjoint(await self._listed(locator, suffixes)):",
            "if tried:",
        ),
    ),
    *LATE_WRITERS.edits(
        (
            "H12: a copy that fails forgets a log whose completion is on the way",
            "            await end_uploads()  # a request",
            "            # a request",
        ),
        (
            "H12: a writer that stores during its deletion leaves a log that nothing lists",
            """        own = [one async for one in self.own_versions.listed(names_prefix(locator))]
        if not own and not own_metadata(locator):  # what is written first and removed last
            return
        end_uploads = await self._uploads_in(locator, own)
""",
            """        own = [one async for one in self.own_versions.listed(names_prefix(locator))]
        end_uploads = await self._uploads_in(locator, own)
        own = [one async for one in self.own_versions.listed(names_prefix(locator))]
""",
        ),
        (
            "H12: of several uploads of an attempt only the last one is ended by its deletion",
            "self._reference(locator, one.version_id)",
            "self._reference(locator)",
        ),
    ),
    *LATE_VIEWS.edits(
        (
            "H12: index files that came after the deletion of their attempt stay for ever",
            "            if tried == 1:\n",
            "            if not tried:\n",
        ),
        (
            "H6: the log of a segment that has lost our objects goes with another segment",
            'is_index = not one.name.endswith(f".{LOG}")',
            "is_index = bool(one.name)",
        ),
        (
            "H12: index files of a segment in another store go with one of this store",
            "return self.own.key(name) == keys and is_segment_object(",
            "return is_segment_object(",
        ),
        (
            "H12: index files of a segment that is there go with another one",
            "            if not [one async for one in self.own_versions.listed(keys)]:\n",
            "            if keys:\n",
        ),
        (
            "H12: what others put beside a segment goes with it",
            "head.metadata.get(ATTEMPT_KEY) == attempt]",
            "head.metadata.get(ATTEMPT_KEY, attempt) == attempt]",
        ),
        (
            "index files that cannot be removed hold up the deletions of their offset",
            "                with suppress(RemoteStorageError):  # then",
            "                with suppress(NotFound):  # then",
        ),
        (
            "H12: a writer that fails leaves index files of a deleted attempt",
            "        finally:  # however it ended",
            "        except NotFound:  # however it ended",
        ),
    ),
    *COST.edits(
        (
            "H12: records stay when all that is under our keys was lost",
            "        if not own and not own_metadata(locator):",
            "        if not own:",
        ),
        (
            "a copy that fails takes away what says where an earlier log of its attempt is",
            "            if [one async for one in self._of_attempt(locator, (LOG,))]:\n",
            "            if not locator:\n",
        ),
        (
            "every deletion of an attempt asks for the versions of all that ran at the same time",
            "        return self.layout.view_of(locator, LOG)\n\n    async def publish",
            "        return str(locator.segment_id.id)\n\n    async def publish",
        ),
    ),
    *MANAGER.edits(
        (
            "a deleted segment of another layout leaves its versions for ever",
            "        if self._pinterest is None:\n            await together(",
            "        if names:\n            await together(",
        ),
        (
            "deleted segments of other layouts leave their versions where many go at once",
            "return self._pinterest is not None or needs_views(locator)",
            "return needs_views(locator)",
        ),
    ),
    *DELETIONS.edits(
        (
            "H12: a deletion that names no version takes the current one",
            "        if not version.version_id:\n",
            "        if version.version_id is None:\n",
        ),
    ),
    *VERSIONS.edits(
        (
            "H12: the current version is deleted, whosever it is",
            "client.delete_object(**self.objects.target(version.name, version.version_id))",
            "client.delete_object(**self.objects.target(version.name))",
        ),
    ),
    *FINDINGS.edits(
        (
            "a lifecycle rule that takes shadowed versions away is accepted",
            "            if rule.get(action) and _may_touch(rule, prefix):\n",
            "            if rule.get(action) and not rule:\n",
        ),
    ),
)
