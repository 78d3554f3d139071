"""Provide what every page needs besides its content: templates, style sheet and scripts."""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import replace_file
from fedcohort.report.figures.chart_style import ink_on
from fedcohort.report.figures.screen_words import for_screens

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment", "page_script", "scripts", "style", "with_code"]


@lru_cache(maxsize=1)
def environment() -> "Environment":
    """The environment that renders the templates; it escapes everything that it inserts."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("fedcohort.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["for_screens"] = for_screens
    made.filters["with_code"] = with_code
    return made


def with_code(text: str) -> Markup:
    """Escaped text in which what stands between backticks is code; a backtick without a second one stays."""
    parts = re.split("`([^`]+)`", text)
    return Markup().join(
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in enumerate(parts)
    )


def _template_text(name: str) -> str:
    templates = environment()
    assert templates.loader is not None
    return str(templates.loader.get_source(templates, name)[0])


def page_script() -> str:
    """The page's own script."""
    return _template_text("page.js")


def style() -> str:
    """The style sheet, with the colors of strategies and classes in light and dark mode."""
    light = _variables("s", LIGHT_STRATEGIES) + _class_variables(LIGHT_CLASSES)
    dark = _variables("s", DARK_STRATEGIES) + _class_variables(DARK_CLASSES)
    return _template_text("page.css").replace("/*light*/", light).replace("/*dark*/", dark)


def _class_variables(colors: Sequence[str]) -> str:
    """The colors of classes, and those of text on them."""
    return _variables("c", colors) + _variables("t", list(map(ink_on, colors)))


def _variables(prefix: str, colors: Sequence[str]) -> str:
    return "".join(f"--{prefix}{i}:{color};" for i, color in enumerate(colors))


LIGHT_STRATEGIES = ("#0072B2", "#B85000", "#00795A", "#A8497F", "#8A6500", "#000000", "#6B4A86", "#8C3A2B")
"""Okabe and Ito's hues, dark enough for text on white."""

DARK_STRATEGIES = ("#4FA8E8", "#F08A4B", "#2FC79A", "#E5A3C8", "#D9B44A", "#F2F2F2", "#B48BD6", "#B5785A")
LIGHT_CLASSES = (
    "#53399C", "#0C8AE9", "#09644C", "#0F3E0E", "#7B9D37", "#605F08", "#C33B60", "#65084A", "#A05B94", "#929292",
)  # fmt: skip
"""About the hues of Paul Tol's "muted" scheme, with a contrast of at least 3 to a white page, where some of his have less than
2. No two are nearer to each other than 11 in CIELAB, also as color-blind readers see them."""

DARK_CLASSES = (
    "#4D5DC1", "#4C96CE", "#59F4D0", "#11C783", "#9C900B", "#D4E169", "#A55048", "#DB5E98", "#DBB3EB", "#676767",
)  # fmt: skip
"""The same hues with a contrast of at least 3 to a dark page."""


@lru_cache(maxsize=1)
def scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, taken from ``vl-convert``, so that pages need no network.

    Bundling takes more than a second of processor time. Therefore the script is kept in the user's cache; without a cache it is
    bundled again.
    """
    import vl_convert

    from fedcohort.core.files.user_cache import cache_folder

    cached = None
    with suppress(UsageError, OSError):
        cached = cache_folder("pages") / f"vega-{version('vl-convert-python')}.js"
        text = cached.read_text(encoding="utf-8")
        if text.endswith(END):
            return text
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed; window.vega = vega;")
    bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--") + END
    if cached is not None:
        with suppress(OSError):
            replace_file(cached, bundle.encode())
    return bundle


END = "\n// whole\n"
"""The last line of a cached script that was written completely."""
