"""Planted bugs in what depends on the layout of a segment's objects: their names, their order, what
is expected in the store, and what an older version of the software is kept from.
"""

from tests.mutants.edits import Edit, Target

_TASKS = "tests/rlm/tasks/test_layouts.py"
ENVELOPE = Target("kip405/segments.py", ("tests/kip405/test_values.py",))
KEYS = Target("rsm_plugins/layout/keys.py", ("tests/rsm_plugins/test_keys.py",))
STORED = Target("rsm_plugins/layout/stored.py", ("tests/rsm_plugins/test_stored_contents.py",))
ATTEMPT = Target("rlm/tasks/copy_attempt.py", (_TASKS,))
EVIDENCE = Target("rlm/tasks/evidence.py", (_TASKS,))
SURVEY = Target("rlm/tasks/store_survey.py", (_TASKS,))
REBUILD = Target("rlm/tasks/ledger_rebuild.py", (_TASKS,))
RECONCILE = Target("rlm/plans/reconcile.py", (_TASKS,))
RECORDS = Target("rlmm/records.py", ("tests/rlmm/test_records.py",))
TARGETS = Target("rlm/stores/stores.py", ("tests/rlm/stores/test_routes.py",))
VERBS = Target("rlm/topics/verbs.py", ("tests/rlm/topics/test_verbs.py",))
SNAPSHOT = Target("rlmm/snapshot.py", ("tests/rlmm/test_snapshot_meaning.py",))
MANAGER = Target("rlmm/manager.py", ("tests/rlmm/test_manager.py",))

EDITS: tuple[Edit, ...] = (
    *ENVELOPE.edits(
        (
            "H6: an unknown layout is taken for Kafka's",
            '            raise ValueError(f"object layout {layout} is not known") from error\n',
            "            known_layout = Layout.KAFKA if error else Layout.KAFKA\n",
        ),
    ),
    *KEYS.edits(
        (
            "G4: the manifest is deleted last",
            "    return (ObjectKind.MANIFEST, *data_objects_of(locator))\n",
            "    return (*data_objects_of(locator), ObjectKind.MANIFEST)\n",
        ),
        (
            "H11: a store of another layout answers that a segment is missing",
            "    if kind not in objects_of(locator):\n",
            "    if kind not in ObjectKind:\n",
        ),
        (
            "remains of another layout are looked up under Kafka's names",
            "    return CustomMetadata(store_id=Uuid(bytes(16)), entropy_bits=bits, layout=layout)",
            "    return CustomMetadata(store_id=Uuid(bytes(16)), entropy_bits=bits)",
        ),
    ),
    *STORED.edits(
        (
            "H11: other objects than those that were stored are expected",
            "    if layout_of(expected.locator) is Layout.KAFKA:\n        return {\n"
            "            ObjectKind.LOG: expected.log_size_bytes,\n",
            "    if layout_of(expected.locator) is not None:\n        return {\n"
            "            ObjectKind.LOG: expected.log_size_bytes,\n",
        ),
        (
            "G3: a plugin need not say what it stored",
            "    if len(found) != len(kinds):\n",
            "    if len(found) > len(kinds):\n",
        ),
    ),
    *ATTEMPT.edits(
        (
            "a manifest names the layout of every other segment",
            "layout=str(custom.layout)",
            "layout=str(type(custom.layout).KAFKA)",
        ),
        (
            "a segment is not recorded with the layout that was chosen",
            "entropy_bits=target.entropy_bits, layout=target.layout",
            "entropy_bits=target.entropy_bits",
        ),
    ),
    *EVIDENCE.edits(
        (
            "H6: a manifest is adopted though its segment has another layout",
            "            check_layout(manifest, found)\n",
            "",
        ),
        (
            "H6: a manifest says of a log of ours that it is in a bucket of theirs",
            "    if custom.layout is Layout.KAFKA and is_marked(locator):\n",
            "    if manifest.layout == MANIFEST_LAYOUT:\n",
        ),
    ),
    *SURVEY.edits(
        (
            "H6: a rebuild takes a manifest though its segment has another layout",
            "        check_layout(manifest, metadata)\n",
            "",
        ),
        (
            "H6: remains of another layout count as if they had no records",
            "        has_records = parsed.kind is DATA_OBJECTS[parsed.layout][0]\n",
            "        has_records = parsed.kind is ObjectKind.LOG\n",
        ),
        (
            "H12: remains of another layout are registered as Kafka's and stay for ever",
            "            layout=parsed.layout,\n",
            "",
        ),
    ),
    *REBUILD.edits(
        (
            "H11: a ledger gets segments whose logs others may delete",
            "if is_marked(self._evidence.locator(one))",
            "if one is None",
        ),
    ),
    *RECONCILE.edits(
        (
            "H12: what is registered has another layout than the remains",
            "entropy_bits=leftover.entropy_bits, layout=leftover.layout",
            "entropy_bits=leftover.entropy_bits",
        ),
    ),
    *SNAPSHOT.edits(
        (
            "H6: an older version takes segments that it cannot read out of a snapshot",
            "_MEANING: Final = 3\n",
            "_MEANING: Final = 2\n",
        ),
    ),
    *RECORDS.edits(
        (
            "H6: an older version starts beside segments that it cannot read",
            "    return FORMAT_VERSION if is_kafkas else LAYOUT_VERSION\n",
            "    return FORMAT_VERSION if is_kafkas else FORMAT_VERSION\n",
        ),
        (
            "an older version is kept away though there is no segment of a newer layout",
            "    return FORMAT_VERSION if is_kafkas else LAYOUT_VERSION\n",
            "    return LAYOUT_VERSION if is_kafkas else LAYOUT_VERSION\n",
        ),
    ),
    *TARGETS.edits(
        (
            "segments are copied in a layout that the plugin does not know",
            "        _refuse_layout(connection, layout)\n        return CopyTarget(",
            "        return CopyTarget(",
        ),
        (
            "a topic's own layout does not count where it is Kafka's",
            "endpoint.layout if chosen is None else chosen\n        _refuse_layout(conn",
            "chosen or endpoint.layout\n        _refuse_layout(conn",
        ),
        (
            "a plugin that was not asked yet counts as one that knows all layouts",
            "    if layout is Layout.KAFKA:\n        return\n",
            "    if layout is Layout.KAFKA or connection.layouts is None:\n        return\n",
        ),
    ),
    *VERBS.edits(
        (
            "a topic loses its layout when something else is changed",
            "        layout=_layout(options, before),\n",
            "        layout=options.layout,\n",
        ),
    ),
    *MANAGER.edits(
        (
            "H6: the version of a record is not written",
            "            version=version,\n",
            "",
        ),
    ),
)
