"""`rlm completion`: what a shell needs to complete the commands of `rlm` and `rsm-plugin`.

click asks the programs themselves, so that a completion is never older than its program.
"""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from rlm.cli.main import main as rlm

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_PROGRAMS = {"rlm": "_RLM_COMPLETE", "rsm-plugin": "_RSM_PLUGIN_COMPLETE"}
"""Programs with the variable by which a shell asks each; click derives it from the name."""


@click.command()
@click.argument("shell", type=click.Choice([*_SHELLS]))
def completion(*, shell: str) -> None:
    """Print what SHELL must evaluate to complete rlm and rsm-plugin.

    \b
    - bash 4.4 or newer: eval "$(rlm completion bash)" in ~/.bashrc
    - zsh: eval "$(rlm completion zsh)" in ~/.zshrc, after compinit
    - fish: rlm completion fish > ~/.config/fish/completions/rlm.fish
    """
    for program, variable in _PROGRAMS.items():
        # The text names the program only; its commands are asked for when Tab is pressed.
        source = _SHELLS[shell](rlm, {}, program, variable)
        click.echo(source.source_template % source.source_vars())
