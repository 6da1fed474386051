"""What Regard is made of: every package that it needs, with version and licence, as CycloneDX 1.5 JSON:
`make sbom`, or `python tools/sbom.py --licences` as a table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import cast
from urllib.parse import quote

from packaging.requirements import Requirement


def needed(name: str, extras: frozenset[str] = frozenset(), seen: set[str] | None = None) -> Iterator[Distribution]:
    """A package and what it requires here, each once."""
    seen = set() if seen is None else seen
    try:
        found = distribution(name)
    except PackageNotFoundError:  # an extra that is not installed
        return
    key = canonical(found.name)
    if key not in seen:
        seen.add(key)
        yield found
    for line in found.requires or []:
        requirement = Requirement(line)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            continue
        if canonical(requirement.name) not in seen:
            yield from needed(requirement.name, frozenset(requirement.extras), seen)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(package: Distribution) -> str:
    """As the package states it: the expression, a short field, or its classifiers."""
    said = cast(Message, package.metadata)
    if expression := said.get("License-Expression"):
        return str(expression)
    if (field := str(said.get("License") or "").strip()) and len(field) < 60 and "\n" not in field:
        return field
    classified = [
        line.rpartition(" :: ")[2] for line in said.get_all("Classifier", []) if line.startswith("License ::")
    ]
    return ", ".join(classified) or "see its LICENSE file"


def bill(packages: list[Distribution]) -> dict[str, object]:
    first, *others = packages

    def reference(package: Distribution) -> str:
        return f"pkg:pypi/{canonical(package.name)}@{quote(package.version)}"

    def component(package: Distribution, kind: str = "library") -> dict[str, object]:
        return {
            "type": kind,
            "bom-ref": reference(package),
            "name": package.name,
            "version": package.version,
            "purl": reference(package),
            "licenses": [{"license": {"name": licence(package)}}],
        }

    known = {canonical(package.name): package for package in packages}
    edges = []
    for package in packages:
        names = {canonical(Requirement(line).name) for line in package.requires or []}
        edges.append({
            "ref": reference(package),
            "dependsOn": sorted(reference(known[name]) for name in names & known.keys() - {canonical(package.name)}),
        })  # fmt: skip
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(first, "application")},
        "components": [component(package) for package in sorted(others, key=lambda each: canonical(each.name))],
        "dependencies": edges,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--licences", action="store_true", help="a table of names, versions and licences")
    asked = parser.parse_args()
    packages = [*needed("regard", frozenset({"data"}))]
    if asked.licences:
        for package in sorted(packages, key=lambda each: canonical(each.name)):
            print(f"{package.name:28} {package.version:14} {licence(package)}")
    else:
        json.dump(bill(packages), sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
