"""`python -m tests.mutants`, which `make mutants` calls: plants bugs, prints who noticed them.

Ends with 1 where a bug went unnoticed, or could not be judged. A run of all writes its raw result
under bench/results/.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.machine import commit, load_in_words, machine_in_words
from tests.mutants.edits import ROOT, DoesNotApply, Edit
from tests.mutants.runner import BaselineFailed, Result, Verdict, run
from tests.mutants.table import EDITS

_RESULTS = ROOT / "bench" / "results"
_BAD = (Verdict.SURVIVED, Verdict.BROKEN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 = every bug was noticed, or is named as harmless."""
    options = _options(arguments)
    known = _killed_before(options.again) if options.again else {}
    edits = [edit for edit in EDITS if options.only in edit.name and _key(edit) not in known]
    print(f"{len(edits)} planted bugs, {options.workers} at a time", flush=True)
    began = time.monotonic()
    load, begun_at = load_in_words(), commit()

    def report(number: int, result: Result) -> None:
        if options.verbose or result.verdict is not Verdict.KILLED:
            print(f"{number}/{len(edits)} {_line(result)}", flush=True)
        elif number % 20 == 0:
            print(f"{number}/{len(edits)}", flush=True)

    try:
        for edit in edits:
            edit.check()
        with tempfile.TemporaryDirectory(prefix="rlm-mutants-") as scratch:
            results = run(edits, Path(scratch), workers=options.workers, report=report)
    except (DoesNotApply, BaselineFailed) as error:
        print(error)
        return 2
    duration_s = round(time.monotonic() - began)
    counts = Counter(result.verdict for result in results)
    print(", ".join(f"{counts[one]} {one.value}" for one in Verdict), f"in {duration_s} s")
    if not options.only or options.out:
        path = options.out or _RESULTS / f"mutants-{time.strftime('%Y-%m-%d', time.gmtime())}.json"
        rows = [*known.values(), *(_row(result, begun_at) for result in results)]
        document = _document(rows, begun_at, duration_s, options.workers, load)
        path.write_text(json.dumps(document, indent=1))
        print(f"raw result: {path}")
    return 1 if any(counts[one] for one in _BAD) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="bugs whose file or hazard contains this")
    parser.add_argument("--workers", type=int, default=2, help="copies of the tree at a time")
    parser.add_argument("--again", type=Path, help="leave out what this earlier result has killed")
    parser.add_argument("--out", type=Path, help="where the raw result goes")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the killed ones too")
    return parser.parse_args(arguments)


def _line(result: Result) -> str:
    reason = result.edit.harmless or result.by
    return f"{result.verdict.value} {result.edit.name}" + (f" ({reason})" if reason else "")


Key = tuple[str, str, str]
Row = dict[str, object]


def _key(edit: Edit) -> Key:
    return edit.file, edit.old, edit.new


def _killed_before(path: Path) -> dict[Key, Row]:
    """Rows of an earlier result that were killed, of bugs that the table still has."""
    table = {_key(edit) for edit in EDITS}
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    killed = [row for row in rows if row["verdict"] == Verdict.KILLED.value]
    found = {(row["file"], row["old"], row["new"]): row for row in killed}
    return {key: row for key, row in found.items() if key in table}


def _document(
    rows: Sequence[Row], begun_at: str, duration_s: int, workers: int, load: str
) -> object:
    """The raw result; rows that an earlier run has killed name its commit."""
    counts = Counter(row["verdict"] for row in rows)
    return {
        "v": 1,
        "kind": "mutants",
        "commit": begun_at,
        "machine": machine_in_words(),
        "load": load,
        "seeds": "hypothesis derandomised (profile fast)",
        "workers": workers,
        "duration_s": duration_s,
        "planted": len(rows),
        **{one.value: counts[one.value] for one in Verdict},
        "results": rows,
    }


def _row(result: Result, begun_at: str) -> Row:
    edit: Edit = result.edit
    return {
        "file": edit.file,
        "hazard": edit.hazard,
        "old": edit.old,
        "new": edit.new,
        "verdict": result.verdict.value,
        "commit": begun_at,
        "by": edit.harmless or result.by,
        "duration_s": result.duration_s,
    }


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    sys.exit(main())
