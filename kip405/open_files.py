"""The limit of open files of this process (POSIX)."""

import resource
from contextlib import suppress


def raise_open_files_limit(wanted: int) -> None:
    """Let this process have so many files open, or as many as it may ask for; never fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems have a lower limit of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
