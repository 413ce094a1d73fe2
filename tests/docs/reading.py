"""What the documents name, found in their text. Must not know what is right."""

import re

_PATH = re.compile(
    r"`((?:tests|kafka_protocol|kip405|rlm|rlm_client|rlm_sandbox|rlm_spark|tiered_reads|rlmm|rsm_plugins|bench|build_tools|docs|proto)/[\w./-]*)`"
)
_COMMAND = re.compile(r"(?<![\w/.-])(rlm|rsm-plugin)((?: [a-z][a-z-]*)+)")
_COMMAND_LINE = re.compile(r"^(?:    )?(?:\$ )?((?:rlm|rsm-plugin) .*)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|^    .+$", re.DOTALL | re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def paths(text: str) -> list[str]:
    """Every path of ours in backquotes."""
    return _PATH.findall(text)


def command_lines(text: str) -> list[str]:
    """Every line of code, in backquotes or in a block, that begins with a command of ours."""
    blocks = "\n".join(_CODE.findall(text))
    return [line.partition("#")[0] for line in _COMMAND_LINE.findall(blocks)] + spans(text)


def spans(text: str) -> list[str]:
    """The texts in backquotes, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M))


def commands(text: str) -> set[tuple[str, ...]]:
    """Every command named in code: the program and the words after it."""
    return {
        (program, *words.split())
        for part in command_lines(text)
        for program, words in _COMMAND.findall(part)
    }


def options(part: str) -> set[str]:
    """The options in a piece of code."""
    return set(_OPTION.findall(part))
