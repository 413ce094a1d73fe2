"""Kafka's `ssl.principal.mapping.rules`: which principal the subject of a certificate is. Pure.

It does what SslPrincipalMapper of Kafka's clients library does, so that a client is the same
principal by way of the proxy. Patterns are Java's. One that Python might read in another way is
refused when the rules are read, because a wrong principal would be worse than none.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kip405.errors import Invalid

RULES_KEY = "ssl.principal.mapping.rules"
DEFAULT = "DEFAULT"
# Both are SslPrincipalMapper's; the third group of a rule is lower or upper case.
_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_PARSER = re.compile(_RULE, re.ASCII)
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_SPACE = "".join(map(chr, range(0x21)))
_BACK_REFERENCE = re.compile(r"\$(\d+)", re.ASCII)
# Not \b and \B: for Java up to 18 they are at the ends of words of every script.
_SAME_ESCAPES = frozenset("dDwWsSAtnrfa")
_LINE_ENDS = frozenset("\n\r\u0085\u2028\u2029")
_GROUP_STARTS = re.compile(r"\(\?(?:[:=!>]|<[=!]|[is]+[:)])")
_NAMED_GROUP = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_CLASS = re.compile(r"\[\^?(?:\\.|[^\\\[\]])+\]", re.DOTALL)
_DIGITS = re.compile(r"[0-9]+")
_NAME_IN_BRACES = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """`pattern` None: DEFAULT, the whole name. `case`: "L", "U" or nothing."""

    text: str
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replacement = _without_wrong_references(self.replacement, self.pattern.groups)
        # Java replaces what is found, which may be less than what matches the whole.
        found = self.pattern.sub(lambda match: _expanded(match, replacement, self.text), name)
        return {"L": found.lower, "U": found.upper}.get(self.case, lambda: found)()


class PrincipalMapping:
    """The rules of a listener. `texts`: each as SslPrincipalMapper shows it."""

    def __init__(self, rules: str | None) -> None:
        """None is Kafka's default. Invalid: Kafka would refuse them, or they are not the same in
        Python.
        """
        text = DEFAULT if rules is None else rules
        split = (found.group(1) for found in _SPLITTER.finditer(text.strip(_SPACE)))
        self._rules = tuple(_parsed(split))
        self.texts = tuple(rule.text for rule in self._rules)

    def principal(self, subject: str) -> str | None:
        """The name of the principal (its type is User) for a subject as RFC 2253 has it; None where
        no rule applies. Invalid: the rule that applies has no result.
        """
        if not _LINE_ENDS.isdisjoint(subject):
            return None  # what `.` and `$` match there is not the same in Java and Python
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None


def _parsed(texts: Iterator[str]) -> Iterator[_Rule]:
    for text in texts:
        found = _PARSER.match(text)
        if found is None or found.end() != len(text):
            raise Invalid(f"{RULES_KEY}: {text!r} is neither DEFAULT nor RULE:pattern/replacement/")
        if found.group(1) is not None:
            yield _Rule(text=text)
        elif found.group(2) is not None:
            pattern, replacement, case = found.group(2, 4, 6)
            yield _Rule(
                text=f"RULE:{pattern}/{replacement}" + (f"/{case}" if case else ""),
                pattern=_compiled(pattern, text),
                replacement=replacement,
                case=case,
            )


def _compiled(pattern: str, rule: str) -> re.Pattern[str]:
    try:
        return re.compile("".join(_translated(pattern)), re.ASCII)
    except (re.error, ValueError) as error:
        raise Invalid(
            f"{RULES_KEY}: {rule!r} has a pattern that is read here in another way than in Java "
            f"({error}); write it with the simpler signs that both have"
        ) from None


def _translated(pattern: str) -> Iterator[str]:
    """The pattern for Python, piece by piece. ValueError names what may differ."""
    at = 0
    while at < len(pattern):
        one = pattern[at]
        if one == "\\":
            piece, text = _escape(pattern, at)
        elif one == "[":
            piece, text = _class(pattern, at)
        elif one == "(" and pattern.startswith("(?", at):
            piece, text = _group(pattern, at)
        else:
            piece = text = one
        yield text
        at += len(piece)


def _escape(pattern: str, at: int) -> tuple[str, str]:
    quoted = _QUOTED.match(pattern, at)
    if quoted is not None:
        return quoted.group(), re.escape(quoted.group(1))
    piece = pattern[at : at + 2]
    sign = piece[1:]
    if sign == "z":
        return piece, r"\Z"
    is_reference = sign in tuple("123456789") and not pattern[at + 2 : at + 3].isdigit()
    if sign.isalnum() and sign not in _SAME_ESCAPES and not is_reference:
        raise ValueError(piece)
    return piece, piece


def _class(pattern: str, at: int) -> tuple[str, str]:
    found = _CLASS.match(pattern, at)
    if found is None or "&&" in found.group():
        raise ValueError(f"the class at {pattern[at : at + 12]}")
    piece = found.group()
    for escape in re.findall(r"\\(.)", piece):
        if escape.isalnum() and escape not in _SAME_ESCAPES - {"A"}:
            raise ValueError(f"\\{escape} in {piece}")
    return piece, piece


def _group(pattern: str, at: int) -> tuple[str, str]:
    named = _NAMED_GROUP.match(pattern, at)
    if named is not None:
        return named.group(), f"(?P<{named.group(1)}>"
    found = _GROUP_STARTS.match(pattern, at)
    if found is None:
        raise ValueError(pattern[at : at + 4])
    return found.group(), found.group()


def _without_wrong_references(replacement: str, groups: int) -> str:
    """A reference to a group that is not there is text. As Kafka has it, each is found in the
    replacement as given, even where an earlier one has moved it.
    """
    if groups == 0:
        return replacement
    text = replacement
    for found in _BACK_REFERENCE.finditer(replacement):
        if found.group(1).startswith("0"):
            continue
        number = int(found.group(1))
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            text = f"{text[: found.start()]}\\{text[found.start() :]}"
    return text


def _expanded(match: re.Match[str], replacement: str, rule: str) -> str:
    """As Matcher.appendReplacement of Java. Invalid: Java raises there."""
    parts: list[str] = []
    at = 0
    while at < len(replacement):
        one = replacement[at]
        at += 1
        if one == "\\" and at < len(replacement):
            parts.append(replacement[at])
            at += 1
        elif one == "$":
            group, at = _reference(match, replacement, at, rule)
            parts.append(match.group(group) or "")
        elif one == "\\":
            raise _no_result(rule)
        else:
            parts.append(one)
    return "".join(parts)


def _reference(match: re.Match[str], replacement: str, at: int, rule: str) -> tuple[int | str, int]:
    named = _NAME_IN_BRACES.match(replacement, at)
    if named is not None and named.group(1) in match.re.groupindex:
        return named.group(1), named.end()
    digits = _DIGITS.match(replacement, at)
    if digits is None:
        raise _no_result(rule)
    number, end = int(digits.group()[0]), at + 1
    if number > match.re.groups:
        raise _no_result(rule)
    while end < digits.end() and 10 * number + int(replacement[end]) <= match.re.groups:
        number, end = 10 * number + int(replacement[end]), end + 1
    return number, end


def _no_result(rule: str) -> Invalid:
    return Invalid(f"{RULES_KEY}: the replacement of {rule!r} names a group that is not there")
