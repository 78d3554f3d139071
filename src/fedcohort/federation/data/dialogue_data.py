"""An invented dialogue of 24 roles, made at run time from a small grammar: ``dialogue`` and ``dialogue_roles``.

Every role has a trade, which gives its words, and a temper, which gives the form of its sentences: 8 trades × 3 tempers. Roles of one
trade share words, and roles of one temper share sentences, so that clients are alike in parts. How much a role speaks differs by a
factor of up to eight. The text is always the same, and it means nothing.
"""

from collections.abc import Iterator
from functools import cache

from fedcohort.core.random_streams import rng
from fedcohort.federation.data.texts import from_text
from fedcohort.federation.data.token_data import TokenDataset

__all__ = ["DIALOGUES", "dialogue", "spoken"]

DIALOGUES = {"dialogue": "next", "dialogue_roles": "role"}
"""Names of data sets → the task, see :func:`fedcohort.federation.data.texts.from_text`."""

SENTENCES = 100
"""Number of sentences of a role of middle length."""

_TRADES = {
    "SAILOR": ("sail mast anchor harbour rope deck storm keel", "haul moor steer reef", "salt gale tide north"),
    "BAKER": ("bread flour oven crust dough loaf yeast sugar", "knead bake butter serve", "warm sweet golden early"),
    "DOCTOR": ("fever pulse cough bandage remedy patient tonic rest", "heal cure treat examine", "pale grave quiet hopeful"),
    "JUDGE": ("law verdict witness oath court clause bench plea", "rule decide weigh pardon", "just formal stern public"),
    "GARDENER": ("rose hedge spade soil apple seed orchard path", "plant prune water rake", "green late muddy tender"),
    "SMITH": ("iron anvil hammer forge spark chain blade nail", "strike bend temper cast", "hot heavy black stubborn"),
    "POET": ("moon shadow whisper river echo dream velvet sorrow", "sing sigh recall wander", "lonely silver distant vain"),
    "CLERK": ("ledger invoice stamp column receipt total margin file", "count copy balance enter", "exact yearly double missing"),
}  # fmt: skip
"""Trade → its nouns, verbs and adjectives."""

_TEMPERS = {
    "CALM": ("The {a} {n} is here, and we {v} it.", "First we {v} the {n}, then the {m}.", "A {a} {n} needs a {b} {m}."),
    "ANGRY": ("No! {V} that {n}!", "Who took my {a} {n}? Who?", "{V} it! {V} the {n}, you {a} fool!"),
    "CURIOUS": ("Why does the {n} {v}?", "Is it {a}, or is it {b}, this {n}?", "Tell me, do you {v} a {n} or a {m}?"),
}  # fmt: skip
"""Temper → its sentences, with places for nouns (n, m), a verb (v, V) and adjectives (a, b)."""


@cache
def spoken() -> tuple[tuple[str, str], ...]:
    """The lines of the dialogue: (role, sentence)."""
    return tuple(_sentences())


def _sentences() -> Iterator[tuple[str, str]]:
    for number, (temper, trade) in enumerate((temper, trade) for temper in _TEMPERS for trade in _TRADES):
        draws = rng(0, "dialogue", client=number)
        nouns, verbs, adjectives = (words.split() for words in _TRADES[trade])
        for _ in range(round(SENTENCES * 2 ** draws.uniform(-1.5, 1.5))):
            form = _TEMPERS[temper][draws.integers(len(_TEMPERS[temper]))]
            noun, other = draws.choice(nouns, 2, replace=False)
            adjective, second = draws.choice(adjectives, 2, replace=False)
            verb = str(draws.choice(verbs))
            yield (
                f"{temper} {trade}",
                form.format(n=noun, m=other, v=verb, V=verb.capitalize(), a=adjective, b=second),
            )


def dialogue(name: str, window: int = 32) -> TokenDataset:
    """The dialogue as a data set: ``dialogue`` predicts the next character, ``dialogue_roles`` tells which role speaks.

    Args:
        name: one of :data:`DIALOGUES`.
        window: number of characters of a sample.

    Raises:
        UsageError: the window is longer than what the roles say.
    """
    return from_text(spoken(), window=window, task=DIALOGUES[name], name=name)
