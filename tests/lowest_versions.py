"""Print the lowest versions of the direct dependencies, one ``name==version`` per line, as constraints for pip.

    python tests/lowest_versions.py > lowest.txt
    python tests/lowest_versions.py flower ray

The versions are the lower bounds in pyproject.toml, of all packages that the package and its extra ``hub`` need, or of what the named
extras need. PyTorch is left out, because it is installed first: its lowest version has no small build for a CPU on the package index.
"""

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["lowest_versions"]

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest_versions(requirements: list[str]) -> list[str]:
    """``name==version`` for each requirement ``name>=version``, with its marker.

    Raises:
        ValueError: a requirement has no lower bound.
    """
    lowest = []
    for requirement in requirements:
        bound = re.fullmatch(r"([\w.-]+)>=([\w.]+)(?:,[^;]*)?(;.*)?", requirement)
        if bound is None:
            raise ValueError(f"{requirement}: should be NAME>=VERSION")
        lowest.append(f"{bound[1]}=={bound[2]}{bound[3] or ''}")
    return lowest


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [requirement for extra in sys.argv[1:] for requirement in extras[extra]]
    needed = named or [*project["dependencies"], *extras["hub"]]
    print("\n".join(lowest_versions([requirement for requirement in needed if not requirement.startswith("torch>")])))
