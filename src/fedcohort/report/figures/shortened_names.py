"""Shorten the names of rows for charts: whole words are left out in the middle, and those in which names differ stay."""

import re
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["drawable", "short"]

RESERVED = frozenset(
    ["constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"]
)
"""Names that every object of JavaScript has. Vega looks names up in objects, and fails to draw a class or a term of such a name."""

NUMBER = len(" (10)")
"""Letters that a shortened name can have beyond the limit: a number, or words that make it distinct without one."""

HEAD = 3
"""Smallest number of letters that stay of the first word."""

LITTLE = frozenset(("a", "an", "and", "at", "by", "for", "from", "in", "no", "of", "on", "or", "the", "to", "with"))
"""Words that do not stand at the end of the first part."""

BETWEEN = " ,;:-_/"
"""Characters between words; those before an ellipsis are left out."""


def drawable(name: str) -> str:
    """The name as charts can draw it: in one line, and a reserved name gets a character without width at its end.

    Vega cannot read a text with a line separator (U+2028).
    """
    line = " ".join(name.split())
    return f"{line}\u200b" if line in RESERVED else line


def short(names: Sequence[str], limit: int = 28) -> list[str]:
    """Names cut to ``limit`` characters for charts, in the middle and between words, and distinct.

    Of names with the same first word, the words in which they differ stay. Names that are equal all the same get a number.

    >>> short(["conformal participation, alpha=0.1"])
    ['conformal…alpha=0.1']
    >>> short(["power-of-choice, d=10, lr=0.5, batch size 8, more", "power-of-choice, d=2, lr=0.05, batch size 8, more"])
    ['power…d=10, lr=0.5…more', 'power…d=2, lr=0.05…more']
    >>> short(["power of choice with many candidates", "power of choice with few candidates"])
    ['power of choice with many…', 'power of choice with few…']
    """
    texts = [" ".join(name.split()) for name in names]
    families: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        families.setdefault(_words(text)[0].rstrip(BETWEEN) if text else "", []).append(text)
    cut: dict[str, str] = {}
    for family in families.values():
        cut |= _apart(_by_words(family, limit), limit)
    shown = list(cut.values())
    cut |= _before_settings([text for text in cut if shown.count(cut[text]) > 1], limit + NUMBER)
    times: dict[str, int] = {}
    distinct = []
    for text in texts:
        times[cut[text]] = times.get(cut[text], 0) + 1
        distinct.append(_numbered(cut[text], times[cut[text]]))
    return distinct


def _before_settings(names: Sequence[str], limit: int) -> dict[str, str]:
    """Names of rows of a sweep, cut before the settings of their points, where these leave room for a name."""
    parts = {name: name.partition(", ")[::2] for name in names if "=" in name.rpartition(", ")[2]}
    room = limit - max((len(f", {settings}") for _, settings in parts.values()), default=limit)
    heads = list(dict.fromkeys(head for head, _ in parts.values()))
    shown = dict(zip(heads, short(heads, room), strict=True)) if room >= 12 else {}
    return {name: f"{shown[head]}, {settings}" for name, (head, settings) in parts.items() if head in shown}


def _numbered(text: str, time: int) -> str:
    return drawable(text) if time == 1 else f"{text} ({time})"


# --- by words ------------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    """The words with what follows them; a number belongs to the word before it."""
    words: list[str] = []
    for word in re.split(r"(?<=[\s_/])(?=[^\s_/])|(?<=-)(?=[^\d\s-])", text):
        if words and re.fullmatch(r"[\d.]+%?[\s,;:]*", word):
            words[-1] += word
        else:
            words.append(word)
    return words


def _by_words(names: Sequence[str], limit: int) -> dict[str, str]:
    """What names with the same first word are cut to: the first word, those that not all have, and others as long as there is room.

    Names that are alike in which words they keep are cut at the same places.
    """
    found = {name: name for name in names if len(name) <= limit}
    words = {name: _words(name) for name in names}
    common = set.intersection(*({word.strip(BETWEEN) for word in own} for own in words.values()))
    alike: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        kept = tuple(i for i, word in enumerate(words[name]) if not i or word.strip(BETWEEN) not in common)
        if name not in found:
            alike.setdefault((len(words[name]), *kept), []).append(name)
    for (_, *first), same in alike.items():
        found |= zip(same, _cut_alike([words[name] for name in same], set(first), limit), strict=True)
    return {name: found[name] or _cut(name, limit) for name in names}


def _cut_alike(names: Sequence[list[str]], kept: set[int], limit: int) -> list[str]:
    """Names as lists of equally many words with the words ``kept``, and more if there is room; empty texts if there is none."""
    most = limit + NUMBER if len(kept) > 1 else limit
    excess = _longest(names, kept) - most
    if excess > 0:
        names = [[_headless(own[0], excess), *own[1:]] for own in names]
    if _longest(names, kept) > limit:
        return [_joined(own, kept) if _longest(names, kept) <= most else "" for own in names]
    closed = _filled(names, kept, _gaps(kept, len(names[0])), limit)  # a closed gap is one ellipsis less
    kept = _filled(names, closed, _more(names[0], closed), limit)
    return [_joined(own, kept) for own in names]


def _filled(names: Sequence[list[str]], kept: set[int], more: Iterable[set[int]], limit: int) -> set[int]:
    """The places ``kept``, and those of ``more`` for which there is room, in their order."""
    for places in more:
        if _longest(names, kept | places) <= limit:
            kept = kept | places
    return kept


def _longest(names: Sequence[list[str]], places: set[int]) -> int:
    """The length of the longest name with these words."""
    return max(len(_joined(own, places)) for own in names)


def _gaps(kept: set[int], number: int) -> list[set[int]]:
    """The runs of places that are not kept, in order."""
    gaps: list[set[int]] = []
    for place in sorted(set(range(number)) - kept):
        if gaps and place - 1 in gaps[-1]:
            gaps[-1].add(place)
        else:
            gaps.append({place})
    return gaps


def _more(words: Sequence[str], kept: set[int]) -> Iterator[set[int]]:
    """Places to add, in order: the last word, more and more of the first ones, and what stands before the first one that tells."""
    yield {len(words) - 1}
    for end in range(2, len(words) + 1):
        if words[end - 1].strip(BETWEEN) not in LITTLE:  # "UCB with an…" is worse than "UCB…"
            yield set(range(end))
    telling = min(kept - {0}, default=1)
    for begin in range(telling - 1, 0, -1):
        if words[begin].strip(BETWEEN) not in LITTLE:
            yield set(range(begin, telling))


def _headless(word: str, excess: int) -> str:
    """The first word with an ellipsis in place of ``excess`` letters of its end, but with at least :data:`HEAD` letters."""
    letters = word.rstrip(BETWEEN)
    return f"{letters[: max(HEAD, len(letters) - excess - 1)]}…"


def _joined(words: Sequence[str], kept: set[int]) -> str:
    """The kept words, with an ellipsis in place of those left out."""
    text, before = "", -1
    for place in sorted(kept):
        text = (text if place == before + 1 else f"{text.rstrip(BETWEEN + '…')}…") + words[place]
        before = place
    return text if before == len(words) - 1 else f"{text.rstrip(BETWEEN + '…')}…"


# --- by letters, for long words, and for names that differ in many words -----------------------------------------------------


def _apart(cut: dict[str, str], limit: int) -> dict[str, str]:
    """What names are cut to; those that are cut to the same are cut around the place where they differ, until none are alike."""
    found = dict(cut)
    for text in dict.fromkeys(cut.values()):
        same = [name for name, other in cut.items() if other == text]
        place = _common(same)
        around = {name: _cut_around(name, min(place, len(name) - 1), limit) for name in same}
        if len(set(around.values())) > 1:
            found |= _apart(around, limit)
    return found


def _common(texts: Sequence[str]) -> int:
    """The number of characters at the begin that all texts have in common."""
    shortest = min(map(len, texts))
    return next((i for i in range(shortest) if len({text[i] for text in texts}) > 1), shortest)


def _cut(text: str, limit: int) -> str:
    """The text without its middle, if it is longer than ``limit``."""
    end = int(0.4 * (limit - 1))
    return text if len(text) <= limit else f"{text[: limit - 1 - end]}…{text[-end:]}"


def _cut_around(text: str, place: int, limit: int) -> str:
    """The begin of the text and what stands at ``place``, where it differs from others."""
    if len(text) <= limit:
        return text
    begin = limit // 3
    start = max(begin, min(place - 2, len(text) - (limit - begin - 1)))
    rest = text[max(start, text.rfind(" ", start, place) + 1) :]
    begin = max(begin, limit - 1 - len(rest))
    room = limit - begin - 1
    return f"{text[:begin]}…{rest if len(rest) <= room else rest[: room - 1] + '…'}"
