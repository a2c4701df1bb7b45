#!/usr/bin/env python3
"""Prints a bill of materials (CycloneDX 1.5, JSON) of the command `kiln`: its crates, their licences and checksums.

The C libraries that crates bring along are named by THIRD-PARTY.md.
"""

import json
import subprocess
import sys

TARGET = "x86_64-unknown-linux-musl"


def main():
    """Prints the document."""
    told = subprocess.run(
        ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={TARGET}"],
        check=True,
        capture_output=True,
    )
    metadata = json.loads(told.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(id for id, package in packages.items() if package["name"] == "kiln-command")
    # Crates that are built into the program: none of tests or build scripts.
    found, left = set(), [root]
    while left:
        id = left.pop()
        if id in found:
            continue
        found.add(id)
        for dep in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in dep["dep_kinds"]):
                left.append(dep["pkg"])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "kiln", "version": packages[root]["version"]}},
        "components": [component(packages[id]) for id in sorted(found - {root}, key=lambda id: packages[id]["name"])],
    }
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    print()


def component(package):
    """Returns a crate as a component."""
    name, version = package["name"], package["version"]
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
        "licenses": [{"expression": (package["license"] or "unknown").replace("/", " OR ")}],
    }


if __name__ == "__main__":
    main()
