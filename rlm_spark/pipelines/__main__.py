"""`python -m rlm_spark.pipelines export|audit`, by spark-submit too: commands without `rlm`."""

import os
import sys
from collections.abc import Sequence

from rlm_spark.errors import LibraryMissingError, needing_spark
from rlm_spark.pipelines.arguments import connection_options, parser
from rlm_spark.plan.offset_specs import OptionError
from tiered_reads.errors import ConnectorError

_EXIT_FAILED = 1
_EXIT_WRONG_USE = 2


def main(argv: Sequence[str]) -> int:
    """The exit status; errors are one line on standard error."""
    values = vars(parser(os.environ).parse_args(argv))
    try:
        with needing_spark():
            from rlm_spark.pipelines.commands import run_audit, run_export
        run = run_export if values["command"] == "export" else run_audit
        return run(values["topics"], values, connection_options(values), values["json"])
    except ConnectorError as error:
        sys.stderr.write(f"{values['command']}: {' '.join(str(error).split())}\n")
        is_wrong_use = isinstance(error, OptionError | LibraryMissingError)
        return _EXIT_WRONG_USE if is_wrong_use else _EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
