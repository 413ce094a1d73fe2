"""Where librdkafka's own log lines go: a file beside the other logs, not between the demo's lines
(a service that is restarted means many refused connections).
"""

import logging
from pathlib import Path


def client_log(path: Path) -> logging.Logger:
    """A logger of its own that writes to `path`, which is made at the first line."""
    logger = logging.Logger("librdkafka")
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger
