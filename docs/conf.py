"""How Sphinx builds the site; tools/build_site.py collects its pages and calls it."""

import builtins
import html
import re
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from docstrings import restructured  # noqa: E402

import relaxpy  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: The public addresses of the site and of the repository, once there are some.
URLS = PROJECT.get("urls", {})

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
html_favicon = "images/icon.svg"
if "Documentation" in URLS:
    html_baseurl = f"{URLS['Documentation'].rstrip('/')}/{release}/"
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
    "pygments_dark_style": "github-dark",
    **({"github_url": URLS["Repository"]} if "Repository" in URLS else {}),
}


def as_restructured(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    """Rewrite the lines of a docstring, which are plain text, as reStructuredText."""
    lines[:] = restructured("\n".join(lines)).splitlines()


def without_builtins(app, doctree):  # type: ignore[no-untyped-def]
    """Remove the links of names of Python, which Sphinx would lead to names of relaxpy."""
    for node in doctree.findall(pending_xref):
        if node.get("refdomain") == "py" and hasattr(builtins, node["reftarget"]):
            node["reftarget"] = f"builtins.{node['reftarget']}"


def described(app, pagename, templatename, context, doctree):  # type: ignore[no-untyped-def]
    """Give a page a description, for search engines and where its address is shared."""
    if pagename == root_doc:
        context["title"] = "Run PyTorch and ONNX models, and read their compiler"
    first = next(iter(doctree.findall(nodes.paragraph)), None) if doctree else None
    text = " ".join(first.astext().split()) if first is not None else PROJECT["description"]
    if len(text) > 200:
        text = f"{text[:200].rpartition(' ')[0]} …"
    values = {
        "og:title": re.sub("<[^>]*>", "", html.unescape(context.get("title", project))),
        "og:description": text,
        "og:site_name": project,
        "og:type": "website",
        **({"og:url": context["pageurl"]} if context.get("pageurl") else {}),
    }
    tags = [("name", "description", text), *(("property", *item) for item in values.items())]
    context["metatags"] = context.get("metatags", "") + "".join(
        f'<meta {kind}="{key}" content="{html.escape(value)}">\n' for kind, key, value in tags
    )


def setup(app):  # type: ignore[no-untyped-def]
    """Connect what reads docstrings, and what describes pages."""
    app.connect("html-page-context", described)
    app.connect("autodoc-process-docstring", as_restructured)
    app.connect("doctree-read", without_builtins)
