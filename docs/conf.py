"""How Sphinx builds the site; tools/build_site.py collects its pages and calls it."""

import builtins
import sys
from pathlib import Path

from sphinx.addnodes import pending_xref

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from docstrings import restructured  # noqa: E402

import relaxpy  # noqa: E402

project = "relaxpy"
version = release = relaxpy.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc"]
nb_execution_mode = "off"  # notebooks are saved with their outputs
root_doc = "index"
suppress_warnings = [
    "ref.python",  # annotations name classes that several modules have
    "misc.highlighting_failure",  # errors in notebooks are no tracebacks of IPython
]
default_role = "code"
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_copyright = html_show_sphinx = False
templates_path = ["templates"]
html_theme_options = {
    "navbar_end": ["versions", "theme-switcher"],
    "navigation_depth": 3,
    "collapse_navigation": True,
    "show_nav_level": 1,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
    "header_links_before_dropdown": 7,
}


def as_restructured(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    """Rewrite the lines of a docstring, which are plain text, as reStructuredText."""
    lines[:] = restructured("\n".join(lines)).splitlines()


def without_builtins(app, doctree):  # type: ignore[no-untyped-def]
    """Remove the links of names of Python, which Sphinx would lead to names of relaxpy."""
    for node in doctree.findall(pending_xref):
        if node.get("refdomain") == "py" and hasattr(builtins, node["reftarget"]):
            node["reftarget"] = f"builtins.{node['reftarget']}"


def setup(app):  # type: ignore[no-untyped-def]
    """Connect what reads docstrings."""
    app.connect("autodoc-process-docstring", as_restructured)
    app.connect("doctree-read", without_builtins)
