"""Planted bugs in `rlm doctor`: what would call a site sound that is not (H38)."""

from tests.mutants.edits import Edit, Target

CHECKS = Target("rlm/diagnosis/checks.py", ("tests/rlm/diagnosis/test_verdict.py",))
LOCAL = Target("rlm/diagnosis/local.py", ("tests/rlm/diagnosis/test_disks.py",))
TOPICS = Target("rlm/diagnosis/topics.py", ("tests/rlm/diagnosis",))
SERVICES = Target("rlm/diagnosis/services.py", ("tests/rlm/diagnosis/test_services.py",))
STORES = Target("rlm/diagnosis/stores.py", ("tests/rlm/diagnosis/test_stores.py",))
CONNECTION = Target("rlm/stores/connection.py", ("tests/rlm/diagnosis/test_stores.py",))

READERS = Target("rlm/diagnosis/readers.py", ("tests/rlm/diagnosis/test_topics.py",))
CALLS = Target("rlm/diagnosis/service_calls.py", ("tests/rlm/diagnosis/test_service_calls.py",))

EDITS: tuple[Edit, ...] = (
    *READERS.edits(
        (
            "H38: groups that are not known read nothing past the proxies",
            "        unseen = sorted(known(groups))\n",
            "        unseen = sorted(groups if isinstance(groups, tuple) else ())\n",
        ),
    ),
    *CALLS.edits(
        (
            "H38: groups that could not be read are none",
            "    if answer.direct_problem:\n",
            "    if answer.direct_problem and not answer:\n",
        ),
    ),
    *CHECKS.edits(
        (
            "H38: a check that could not be made is sound",
            "        return bool(self.unasked) or any(",
            "        return any(",
        ),
        (
            "a warning changes no exit status",
            "    return finding.severity is not Severity.NOTE\n",
            "    return finding.severity is Severity.ALARM\n",
        ),
    ),
    *LOCAL.edits(
        (
            "H13: nobody opens the segments of a partition",
            "        _open_each(path, segments[:1] + segments[1:][-1:])\n",
            "",
        ),
    ),
    *TOPICS.edits(
        (
            "H38: a broker that does not say its retention has none",
            "            raise NotAsked(f",
            "            continue\n            raise NotAsked(f",
        ),
        (
            "H14: only the first broker's retention counts",
            "    for node_id, config in sorted(topic.configs.items()):\n",
            "    for node_id, config in sorted(topic.configs.items())[:1]:\n",
        ),
    ),
    *SERVICES.edits(
        (
            "H18: where no service is heard any more, none is silent",
            "    return max(certain_ms, settings.now_ms",
            "    return max(certain_ms, settings.now_ms - settings.now_ms",
        ),
        (
            "H6: where the settings topic is missing no service has run yet",
            "        yield from _lost_settings(site)\n",
            "",
        ),
        (
            "H6: topics that were lost both, and that the state remembers, never were",
            "    if known(site.remembered):\n",
            "    if not known(site.own_topics):\n",
        ),
        (
            "H38: a store that is silent is one that nobody has used",
            "        if store.problem:\n            raise NotAsked(",
            "        if not stores:\n            raise NotAsked(",
        ),
        (
            "H6: a recreated ledger is as good as the recorded one",
            "        guard = TopicGuard(spec, _recorded(settings).get(spec.name))\n",
            "        guard = TopicGuard(spec, None)\n",
        ),
    ),
    *STORES.edits(
        (
            "H11: another store under a known name is ours",
            "        if problem is not None:\n            where",
            "        if problem is not None and store.identity is None:\n            where",
        ),
    ),
    *CONNECTION.edits(
        (
            "H11: the cluster of a store is not compared",
            "    if found.cluster_id != cluster_id:\n        return f",
            "    if not found.cluster_id:\n        return f",
        ),
    ),
)
