"""Reads a backup of the settings topic: lines of key|value, as Kafka's console consumer prints it.

docs/disaster-recovery.md says how it is made. The newest line of a key is its value, `null` removes
it. Whatever cannot be understood is refused: a backup without one line proves less than it seems.
"""

from pathlib import Path

from kip405.errors import Invalid
from rlmm.settings_view import SettingsView

_SEPARATOR = b"|"
_TOMBSTONE = b"null"


def read_settings_backup(path: Path) -> SettingsView:
    """The settings as of the backup. Invalid: the file cannot be read, or a line is not one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    view = SettingsView()
    for number, line in enumerate(content.split(b"\n")):
        line = line.rstrip(b"\r")
        if not line:
            continue
        key, separator, value = line.partition(_SEPARATOR)
        if not key or not separator:
            raise Invalid(f"{path}, line {number + 1}: it is not key|value of a settings record")
        view.apply(key=key, value=None if value == _TOMBSTONE else value, offset=number)
    if view.problem is not None:
        raise Invalid(f"{path}: {view.problem} (the offset is that of the line, from 0 on)")
    return view
