"""`python -m build_tools.sbom`: build/sbom.json, a CycloneDX document of every locked package.

Names, versions and hashes are those of the locks, licences those of the installed metadata. It
needs no network, and the same locks give the same bytes.
"""

import json
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from typing import Any

from packaging.utils import canonicalize_name

from build_tools.licences import Metadata, expression_of, faults
from build_tools.locks import PROFILES, ROOT, Pin, lock_path, read_pins

SBOM = ROOT / "build" / "sbom.json"
_LICENCES = "License ::"


def locked() -> dict[str, tuple[Pin, ...]]:
    """The pins of every lock, by profile."""
    return {one: read_pins(lock_path(one).read_text(encoding="utf-8")) for one in PROFILES}


def installed() -> dict[str, Metadata]:
    """What the packages of this environment say of themselves, by their name in locks."""
    return {canonicalize_name(one.metadata["Name"]): _metadata(one) for one in distributions()}


def _metadata(found: Distribution) -> Metadata:
    def of(field: str) -> list[str]:
        return found.metadata.get_all(field) or []

    return Metadata(
        version=found.version,
        expression="".join(of("License-Expression")),
        text="".join(of("License")),
        classifiers=[one for one in of("Classifier") if one.startswith(_LICENCES)],
    )


def document(
    pins: Mapping[str, tuple[Pin, ...]], packages: Mapping[str, Metadata], version: str
) -> dict[str, Any]:
    """CycloneDX 1.6. A component has the hashes of all files that the lock accepts for it, and a
    property for each lock that has it.
    """
    every = {(pin.name, pin.version): pin for profile in pins.values() for pin in profile}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "kafka-rlm",
                "name": "kafka-rlm",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [
            _component(every[key], packages.get(key[0]), _locks_of(key, pins))
            for key in sorted(every)
        ],
    }


def _locks_of(key: tuple[str, str], pins: Mapping[str, tuple[Pin, ...]]) -> list[str]:
    return [
        profile for profile, has in pins.items() if key in {(pin.name, pin.version) for pin in has}
    ]


def _component(pin: Pin, metadata: Metadata | None, locks: list[str]) -> dict[str, Any]:
    url = f"pkg:pypi/{pin.name}@{pin.version}"
    expression = expression_of(pin.name, metadata)
    return {
        "type": "library",
        "bom-ref": url,
        "name": pin.name,
        "version": pin.version,
        "purl": url,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(pin.sha256)],
        **({"licenses": [{"expression": expression}]} if expression else {}),
        "properties": [{"name": "kafka-rlm:lock", "value": lock} for lock in locks],
    }


def main() -> int:
    """Write the document; the exit status is 1 where a licence is unknown or not allowed."""
    pins, packages = locked(), installed()
    problems = faults([pin for profile in pins.values() for pin in profile], packages)
    for problem in problems:
        print(problem)
    if problems:
        return 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    SBOM.parent.mkdir(exist_ok=True)
    text = json.dumps(document(pins, packages, project["version"]), indent=1) + "\n"
    SBOM.write_text(text, encoding="utf-8")
    print(SBOM.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
