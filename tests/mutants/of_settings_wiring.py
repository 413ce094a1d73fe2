"""Planted bugs in the wiring of a service: a setting does not reach what it is about."""

from collections.abc import Iterator

from tests.mutants.edits import Edit, Target


def _of(file: str, hazard: str, old: str, new: str) -> Iterator[Edit]:
    return Target(file, ("tests/rlm/service/test_settings_wiring.py",)).edits((hazard, old, new))


EDITS: tuple[Edit, ...] = (
    *_of(
        "rlm/service/tasks.py",
        "H35: copy.recovery.point is not obeyed",
        "NeedsFlush(config.copy_recovery_point)",
        "NeedsFlush.NEVER",
    ),
    *_of(
        "rlm/service/task_parts.py",
        "H16: remote.delete.max.percent is not obeyed",
        "most_percent=dependencies.config.remote_delete_max_percent",
        "most_percent=100",
    ),
    *_of(
        "rlm/service/apis.py",
        "H7: as many topics end at a time as percent of the bytes may",
        "max_topics=config.topic_deletion_max_topics",
        "max_topics=config.topic_deletion_max_share_percent",
    ),
    *_of(
        "rlm/service/unreferenced.py",
        "H8: segments of dead histories wait for the grace of the sweep only",
        "grace_ms=dependencies.config.remote_unreferenced_grace_ms",
        "grace_ms=dependencies.config.sweep_grace_ms",
    ),
    *_of(
        "rlm/service/dependencies.py",
        "audit.log.file is not obeyed",
        "config.audit_log_file or config.state_dir / _AUDIT_LOG",
        "config.state_dir / _AUDIT_LOG",
    ),
)
