"""`rlm probe` asks one running service of this machine whether it works, for a supervisor."""

from pathlib import Path

import click


@click.command()
@click.argument("check", type=click.Choice(["startup", "readiness", "liveness"]))
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="The YAML file of the service that is asked.",
)
@click.option(
    "--role", default="broker", show_default=True, type=click.Choice(["broker", "reader"])
)
@click.option(
    "--timeout",
    "timeout_s",
    default=3.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds that each step may take.",
)
def probe(*, check: str, path: Path, role: str, timeout_s: float) -> None:
    """Ask the service that runs here with this configuration whether it works.

    startup: the proxy listens. readiness: a Kafka request goes through the proxy to the broker, and
    its answer comes back. liveness: the event loop answers over HTTP. Of a reader, startup and
    liveness are the same, and readiness says that it has read ledger and settings. The exit status
    is 1 if it is not so; one line says why.
    """
    from rlm.service.probes import probe_reader, probe_service

    (probe_reader if role == "reader" else probe_service)(check, path, timeout_s)
