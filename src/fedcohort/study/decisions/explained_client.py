"""Find the client that an explanation is about, and refuse one that does not exist or was not available."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError, nearest
from fedcohort.federation.data.array_checks import brief
from fedcohort.record import Run
from fedcohort.study.recorded_strategy import was_available

__all__ = ["check_client", "number_of"]


def number_of(client: str, names: Sequence[str]) -> int:
    """The id of a client that is given as text: as its id, or by its name in the data. A text that is both is the id.

    >>> number_of("1", ("7", "8")), number_of("8", ("7", "8"))
    (1, 1)

    Raises:
        UsageError: it is neither.
    """
    is_number = client.isascii() and client.isdecimal()
    if client in names and not (is_number and int(client) < len(names)):
        return names.index(client)
    if is_number:
        return int(client)
    unknown = f"--client {brief(client)}: the federation has no such client"
    if not any(names):
        raise UsageError(f"{unknown}, and the data do not name its clients; give its number, from 0")
    raise UsageError(f"{unknown}; {nearest(client, filter(None, names))}; or give its number, from 0")


def check_client(run: Run, row: Mapping[str, Any], client: int, compared: Sequence[int]) -> bool:
    """Refuse a client that does not exist or was not available; ``row`` is the row of the round, ``compared`` are all candidates.

    Returns:
        Whether it is known that the client was available.
    """
    m = len(run.portrait.facts.get("samples", ())) or run.described.federation.clients  # 1 if all data are pooled
    if not 0 <= client < m:
        valid = f"clients are numbered 0 to {m - 1}" if m > 1 else "its only client is 0"
        raise UsageError(f"--client {client}: the federation has no such client; {valid}")
    if client not in compared and run.meta.get("clock") == "wall":
        others = f"{len(compared):,} clients that were compared in round {row['round']}; the record lists no others"
        raise UsageError(f"--client {client}: was not one of the {others}")
    if client in compared:
        return True
    names = run.portrait.names
    asked = f"--client {client} ({brief(names[client])})" if names else f"--client {client}"
    samples = run.portrait.facts.get("samples")
    if samples is not None and samples[client] == 0:
        filled = np.flatnonzero(samples)
        others = ", ".join(map(str, filled[:12])) + (", …" if len(filled) > 12 else "")
        raise UsageError(
            f"{asked}: has no samples, so that it takes part in no round; {len(filled):,} of {m:,} clients have some, among "
            f"them {others}"
        )
    was = was_available(run, row["round"], client, row["available"])
    if was is not False:
        return was is not None
    examples = ", ".join(map(str, compared[:12])) + (", …" if len(compared) > 12 else "")
    among = ":" if len(compared) == row["available"] and len(compared) <= 12 else ", among them"
    available = f"{row['available']:,} of {m:,} clients were{among} {examples}" if compared else "no client was"
    raise UsageError(f"{asked}: was not available in round {row['round']}; {available}")
