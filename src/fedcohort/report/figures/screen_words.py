"""Know the words about controls and tooltips of a page, which are of no use on paper."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["CONTAINS_0", "CORRECTED", "EVEN_CORRECTED", "HIGHLIGHT", "POINT_AT_MARK", "POINT_AT_ROW", "for_screens"]

HIGHLIGHT = " Choose a name in the list above to highlight its lines."
CORRECTED = " Tooltips have the corrected interval, too."
EVEN_CORRECTED = (
    " Even that can exclude 0 where the difference is not clear: intervals assume Gaussian differences, and the test "
    "does not."
)
CONTAINS_0 = (
    " That one can contain 0 where the difference is clear: it assumes Gaussian differences and is corrected for all differences at "
    "once, whereas the test assumes no distribution, and p is corrected step by step (Holm)."
)
POINT_AT_ROW = "; point at a row for its name"
POINT_AT_MARK = ": point at a mark for its name"

WORDS = (HIGHLIGHT, CORRECTED, EVEN_CORRECTED, POINT_AT_ROW, POINT_AT_MARK)


def for_screens(text: str) -> "Markup":
    """The text as HTML, in which printed pages leave out words about controls and tooltips.

    >>> print(for_screens("Names: at most 6 < 7; point at a row for its name."))
    Names: at most 6 &lt; 7<span class="on-screen">; point at a row for its name</span>.
    """
    from markupsafe import Markup, escape

    html = escape(text)
    for words in WORDS:
        html = html.replace(escape(words), Markup('<span class="on-screen">{}</span>').format(words))
    return html
