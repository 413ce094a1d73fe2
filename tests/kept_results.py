"""Raw numbers of long runs, kept as files with the commit and the machine that they are of."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.machine import commit, load_in_words, machine_in_words

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results"


def keep_result(name: str, content: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Writes `<name>-<date>.json`, over what it had of this day; answers its path."""
    made_by = {"commit": commit(), "machine": machine_in_words(), "load": load_in_words()}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{time.strftime('%Y-%m-%d', time.gmtime())}.json"
    path.write_text(json.dumps({**made_by, **content}, indent=1) + "\n", encoding="utf-8")
    return path
