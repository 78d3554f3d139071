"""Settings of Sphinx for the site; ``make site`` uses them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import autodoc_hooks

import fedcohort

project = "FedCohort"
author = "The FedCohort authors"
copyright = author  # noqa: A001 - the name that Sphinx reads
release = version = fedcohort.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns: list[str] = ["runs/**", "full-size/**"]
nitpicky = True

html_theme = "furo"
html_title = "FedCohort"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # search.js has excerpts that also work from a folder
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fae", "color-brand-content": "#1f5fae"},
    "dark_css_variables": {"color-brand-primary": "#7db3f5", "color-brand-content": "#7db3f5"},
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

myst_enable_extensions = ["html_image", "colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = [
    "misc.highlighting_failure",  # there is no lexer for csv
    "ref.python",  # several objects have an attribute of this name; the first is linked
]

nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_output_stderr = "remove"  # bars of progress

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True


def setup(app: object) -> None:
    """Connect the hooks of autodoc."""
    autodoc_hooks.connect(app)
