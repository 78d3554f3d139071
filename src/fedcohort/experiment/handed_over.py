"""Objects from Python in descriptions: a file can say that there were some, and no more.

The description in a run directory begins with a comment for each of them. To play it again, the same objects must be handed over:
without them, the settings in their place, which are mostly defaults, would give other results without a word.
"""

import re
from collections.abc import Mapping

from fedcohort.core.errors import UsageError, shown

__all__ = ["check_handed_over", "comments", "read_comments"]

_COMMENT = re.compile(r"# ([a-z]+): handed over in Python: (.*)")


def comments(objects: Mapping[str, object]) -> str:
    """Comments for the head of a description, one for each object.

    >>> comments({"data": "patients, 498ca668f343"})
    '# data: handed over in Python: patients, 498ca668f343\\n'
    """
    return "".join(
        f"# {name}: handed over in Python: {' '.join(str(value).split())}\n" for name, value in objects.items()
    )


def read_comments(text: str) -> dict[str, str]:
    """The objects that the comments at the head of a description name.

    >>> read_comments("# data: handed over in Python: patients, 498ca668f343\\nrounds = 3")
    {'data': 'patients, 498ca668f343'}
    """
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if comment := _COMMENT.fullmatch(line):
            found[comment[1]] = comment[2]
    return found


def check_handed_over(before: Mapping[str, str], given: Mapping[str, object]) -> None:
    """Refuse to play a description whose objects are not handed over again.

    Args:
        before: the objects that it names.
        given: the objects that were handed over now, by the same names.

    Raises:
        UsageError: one is missing.
    """
    missing = next((name for name in before if name not in given), None)
    if missing is not None:
        raise UsageError(
            f"{missing}: {shown(before[missing])} was handed over in Python when this was written, and is not in the file; hand it "
            f"over again: fedcohort.run(experiment, {missing}=…)"
        )
