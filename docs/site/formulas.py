"""Typeset the formulas of docstrings as MathML, which browsers draw themselves, without a script or a network.

Docstrings write formulas as plain text: ``UCB_i = mean(ρ_i) + c · √(ln s / n_i)``. Lines and columns stay where they are, and words
stay words. Names with an index or an exponent, such as ``N_i`` or ``w^{t+1}``, become symbols. A slash stays a slash: plain text does
not say how far a numerator reaches.
"""

import re
from html import escape
from typing import NamedTuple

__all__ = ["formula_block", "inline", "typeset"]

RAISED = {"¹": "1", "²": "2", "³": "3", "⁺": "+", "⁻": "−", "ᵀ": "T"}
"""Raised characters, and what is raised."""

TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>\d+(?:[.,]\d+)*(?:e-?\d+)?)
    |(?P<script>[_^])
    |(?P<raised>[¹²³⁺⁻ᵀ]+)
    |(?P<open>[({[⟨⌊⌈])|(?P<close>[)}\]⟩⌋⌉])
    |(?P<root>√)
    |(?P<name>(?:[^\W\d_¹²³⁺⁻ᵀ₀-₉][\u0300-\u036f]*)+)
    |(?P<other>\+=|[<>]=|.)""",
    re.VERBOSE,
)
SYMBOL = re.compile(
    r"(?:(?<![\w`^\\])|(?<=_\w)(?=[Α-Ωα-ω]))(?:(?:[^\W\d_¹²³⁺⁻ᵀ₀-₉][\u0300-\u036f]*){1,4}|∇|\([^()\n]{1,20}\)(?=\^))"
    r"(?:(?:_(?:\{[^{}\n]*\}|min|max|(?:ii|nn|lo|hi)\b|[^\W_¹²³ᵀ](?![A-Za-z0-9_]))|\^(?:dim\b|\{[^{}\n]*\}|\([^()\n]*\)|[^\W_](?![A-Za-z0-9_])))[²³ᵀ]?)+"
)
"""A symbol with an index or an exponent in running text, such as ``acc_{t−1}``. Names such as ``initial_rounds`` are none."""

FUNCTIONS = {
    "ln",
    "exp",
    "max",
    "min",
    "mean",
    "clip",
    "softmax",
    "arccos",
    "med",
    "cos",
    "sign",
    "arg",
    "argmin",
    "logits",
}
"""Names of functions, which are upright and part of formulas."""

EM = 0.52
"""Width of a character of the plain text in em."""


class Token(NamedTuple):
    """A piece of a text: its kind, as in :data:`TOKEN`, and its characters."""

    kind: str
    text: str


END = Token("end", "")


def typeset(page: str) -> str:
    """A page in Markdown whose blocks of text, and symbols with an index, are typeset. Code and links stay as they are."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]*`|\[[^\]\n]*\]\([^)\n]*\))", page, flags=re.DOTALL | re.MULTILINE)
    for i, part in enumerate(parts):
        if part.startswith("```text\n"):
            parts[i] = formula_block(part.removeprefix("```text\n").removesuffix("```"))
        elif i % 2 == 0:
            parts[i] = SYMBOL.sub(lambda match: inline(match[0]), part)
    return "".join(parts)


def formula_block(text: str) -> str:
    """Lines of formulas. Two spaces or more begin a column, which stands where it stands in the plain text if there is room. Words
    that go on in the next line of their column are one text, which browsers wrap within the column."""
    lines = []
    for cells in _lines(text):
        ends = [*(start for start, _ in cells[1:]), None]
        spans = [
            f"<span{'' if end is None else _width(end - start)}>{inline(words)}</span>"
            for (start, words), end in zip(cells, ends, strict=True)
        ]
        begin = cells[0][0] if cells else 0
        column = ' class="described"' if len(cells) > 1 and len(cells[-1][1]) > LONG else ""
        lines.append(f'<div{column} style="padding-left:{EM * begin:.4g}em">{"".join(spans)}</div>')
    return f'<div class="formulas">{"".join(lines)}</div>'


def _lines(text: str) -> list[list[tuple[int, str]]]:
    """The columns of each line: where each begins, and its text with the lines that continue it."""
    lines: list[list[tuple[int, str]]] = []
    for line in text.rstrip("\n").split("\n"):
        cells = [(cell.start(), cell[0].rstrip()) for cell in re.finditer(r"\S(?:\S| (?! ))*", line)]
        before = lines[-1] if lines else []
        goes_on = len(cells) == 1 and len(before) > 1 and before[-1][0] == cells[0][0] and len(before[-1][1]) > LONG
        if goes_on:
            before[-1] = (cells[0][0], f"{before[-1][1]} {cells[0][1]}")
        else:
            lines.append(cells)
    return lines


LONG = 60
"""A column with more characters is a text."""


def _width(characters: int) -> str:
    return f' style="min-width:{EM * characters:.4g}em"'


def inline(text: str) -> str:
    """A text with words and formulas: formulas become MathML, words stay words."""
    return _Line([Token(str(match.lastgroup), match[0]) for match in TOKEN.finditer(text)]).html()


class _Line:
    """Tokens of a line, read from left to right."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0

    def html(self) -> str:
        """Runs of words and runs of math."""
        parts: list[str] = []
        math: list[str] = []
        while self.at < len(self.tokens):
            if self._is_words():
                parts += [_math(math), escape(self._words())]
                math = []
            else:
                math.append(self._piece())
        return "".join([*parts, _math(math)])

    def _peek(self, offset: int = 0) -> Token:
        place = self.at + offset
        return self.tokens[place] if 0 <= place < len(self.tokens) else END

    def _is_words(self, offset: int = 0) -> bool:
        """Whether a word, or a sign or space that belongs to words, stands here."""
        kind, text = self._peek(offset)
        if kind == "space":
            return self._peek(offset - 1) == END or self._is_words(offset + 1) or self._peek(offset + 1) == END
        if kind == "name":
            return self._is_word(offset)
        return text in ('"', "-", "'") or (text in ",;.:" and self._peek(offset + 1).kind in ("space", "end"))

    def _is_word(self, offset: int) -> bool:
        """Whether a name is a word and no symbol: two letters or more without an index, or the article."""
        text, after = self._peek(offset).text, self._peek(offset + 1)
        if self._peek(offset - 1).text in ("-", "'"):
            return True
        beyond = self._peek(offset + 2)
        if text == "a":
            joined = self._peek(offset + 3).text == "-"
            return after.kind == "space" and beyond.kind == "name" and (joined or self._is_word(offset + 2))
        if len(text) < 2 or _product(text) or after.text == "^" or after.kind == "raised":
            return False
        if after.text == "_":
            return beyond.kind == "name" and len(beyond.text) > 2 and beyond.text not in INDICES
        if text in FUNCTIONS:
            return (
                after.kind in ("space", "other")
                and beyond.kind == "name"
                and beyond.text not in FUNCTIONS
                and self._is_word(offset + 2)
            )
        return after.text != "("

    def _words(self) -> str:
        """One word with what is joined to it by underscores, or one sign or space."""
        text = self._peek().text
        self.at += 1
        while self._peek().text == "_" and self._peek(1).kind == "name":
            text += f"_{self._peek(1).text}"
            self.at += 2
        return text

    def _piece(self) -> str:
        """A symbol, number, sign or bracket; words in brackets are texts."""
        if self._peek().kind == "space":
            self.at += 1
            return '<mspace width="0.22em"></mspace>'
        if self._is_words():
            return f"<mtext>{escape(self._words())}</mtext>"
        return self._scripted()

    def _scripted(self) -> str:
        """An atom with its indices and exponents, and the argument of a function."""
        base, below, above = self._atom(), "", ""
        while self._peek().kind == "raised" or (self._peek().kind == "script" and self._peek(1) != END):
            kind, sign = self._peek()
            self.at += 1
            if kind == "raised":
                above += f"<mn>{''.join(RAISED[letter] for letter in sign)}</mn>"
            elif sign == "_":
                below += self._script()
            else:
                above += self._script()
        if below and above:
            return f"<msubsup>{base}<mrow>{below}</mrow><mrow>{above}</mrow></msubsup>"
        if below:
            return f"<msub>{base}<mrow>{below}</mrow></msub>"
        return f"<msup>{base}<mrow>{above}</mrow></msup>" if above else base

    def _script(self) -> str:
        """An index or exponent: one atom, or what stands in braces."""
        if self._peek().text != "{":
            return self._atom()
        self.at += 1
        return self._inner()[0]

    def _atom(self) -> str:
        kind, text = self._peek()
        self.at += 1
        if kind == "root":
            if self._peek().text == "(":
                self.at += 1
                return f"<msqrt>{self._inner()[0]}</msqrt>"
            return f"<msqrt>{self._scripted()}</msqrt>"
        if kind == "open":
            inner, end = self._inner()
            return f'<mrow><mo stretchy="false">{text}</mo>{inner}{end}</mrow>'
        if kind == "number":
            return f"<mn>{text}</mn>"
        if kind == "name":
            symbols = [_symbol(part) for part in _product(text) or [text]]
            return symbols[0] if len(symbols) == 1 else f"<mrow>{''.join(symbols)}</mrow>"
        narrow = ' stretchy="false" lspace="0" rspace="0"' if text in "‖|/" else ""
        return f"<mo{narrow}>{escape(text)}</mo>"

    def _inner(self) -> tuple[str, str]:
        """What stands before the closing bracket, and this bracket."""
        parts: list[str] = []
        while self.at < len(self.tokens):
            kind, text = self._peek()
            if kind == "close":
                self.at += 1
                return "".join(parts), f'<mo stretchy="false">{text}</mo>'
            parts.append(self._piece())
        return "".join(parts), ""


def _math(parts: list[str]) -> str:
    """Parts of a formula as one formula; spaces at its ends become spaces of the text."""
    blank = '<mspace width="0.22em"></mspace>'
    before = " " if parts and parts[0] == blank else ""
    after = " " if len(parts) > 1 and parts[-1] == blank else ""
    inner = parts[len(before) : len(parts) - len(after)]
    return f"{before}<math>{''.join(inner)}</math>{after}" if inner else before + after


INDICES = {"max", "min", "end", "prev", "draws"}
"""Words that are indices or exponents of symbols."""

GREEK = re.compile(r"[Α-Ωα-ω]")
PRODUCTS = re.compile(r"[^\W\d_][\u0300-\u036f]*")


def _product(text: str) -> list[str]:
    """The symbols of a product that is written without spaces, such as ``λI`` or ``Σp``; empty for one symbol or a word."""
    letters = PRODUCTS.findall(text)
    return letters if len(letters) > 1 and GREEK.search(text) else []


def _symbol(text: str) -> str:
    return f"<mo>{text}</mo>" if text in "Σ∇" else f"<mi>{escape(text)}</mi>"
