"""The version of a build, by the tag of the commit that it is made from. Pure.

A tag is `v` and a version: v1.2.0, v1.2.0rc1. What is built from a tagged commit has the tag's
version; what comes after it is a development version of the next one. Without any tag, or outside
of a repository, it is what pyproject.toml says.
"""

import re

DESCRIBE = ("git", "describe", "--tags", "--long", "--always", "--dirty", "--match", "v[0-9]*")
"""The command whose answer `version_of` reads."""

_TAGGED = re.compile(r"v(\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?)-(\d+)-g([0-9a-f]+)(-dirty)?")
_UNTAGGED = re.compile(r"([0-9a-f]{7,})(-dirty)?")
_LAST_NUMBER = re.compile(r"\d+$")


def version_of(described: str, declared: str) -> str:
    """The version by git's description of the commit, "" where there is no repository.

    ValueError for a description that is none, such as that of a tag that is no version.
    """
    if not described:
        return declared
    if tagged := _TAGGED.fullmatch(described):
        version, commits, commit, dirty = tagged.groups()
        if commits == "0" and not dirty:
            return version
        following = _LAST_NUMBER.sub(lambda found: str(int(found[0]) + 1), version)
        return f"{following}.dev{commits}+g{commit}{'.dirty' if dirty else ''}"
    if untagged := _UNTAGGED.fullmatch(described):
        commit, dirty = untagged.groups()
        return f"{declared}.dev0+g{commit}{'.dirty' if dirty else ''}"
    raise ValueError(f"{described}: a tag of a release is v and a version, such as v1.2.0")
