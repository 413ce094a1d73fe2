"""`python -m rlm_spark.pipelines export|audit`, by spark-submit too: commands without `rlm`."""

import os
import sys
from collections.abc import Sequence

from rlm_spark.errors import ConnectorError
from rlm_spark.pipelines.arguments import connection_options, parser
from rlm_spark.pipelines.commands import EXIT_FAILED, run_audit, run_export
from rlm_spark.plan.offset_specs import OptionError

_EXIT_WRONG_USE = 2


def main(argv: Sequence[str]) -> int:
    """The exit status; errors are one line on standard error."""
    values = vars(parser(os.environ).parse_args(argv))
    run = run_export if values["command"] == "export" else run_audit
    try:
        return run(values["topics"], values, connection_options(values), values["json"])
    except ConnectorError as error:
        sys.stderr.write(f"{values['command']}: {' '.join(str(error).split())}\n")
        return _EXIT_WRONG_USE if isinstance(error, OptionError) else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
