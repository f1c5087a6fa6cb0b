"""Sphinx: the pages of this folder, those that `site_pages` generates, and the docstrings of every public name.

The pages are Markdown that also reads well without a site: links to files of the repository become links to
its address, and tables of methods, solvers, fields and statuses are made from the code at every build.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

import site_docstrings
import site_examples
import site_pages
from sphinx.errors import ExtensionError

import jaxdae

project = "jaxdae"
author = copyright = "The jaxdae authors"
version = release = jaxdae.__version__

extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_autodoc_typehints",
]
exclude_patterns = ["conf.py", "site_*.py", "pictures.py", "_build", "index_parts"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext", ".ipynb": "myst-nb"}
suppress_warnings = [
    "toc.empty_glob",
    "config.cache",
    "mystnb.unknown_mime_type",
    # A dataclass inherits fields whose annotations are names of the module of its base class.
    "sphinx_autodoc_typehints.forward_reference",
]
intersphinx_mapping = {}  # the build needs no network

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

nb_execution_mode = "off"  # the notebooks contain their outputs; see `site_notebooks`

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # sphinx_autodoc_typehints writes them
always_use_bars_union = True
typehints_defaults = "comma"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"jaxdae {release}"
html_static_path = ["static"]
html_logo = html_favicon = "static/logo.svg"
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": site_pages.REPOSITORY + "/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_copy_source = False


def setup(app):
    """Writes the generated pages before any page is read, and mends links and docstrings as they are."""
    site_pages.write(HERE)
    app.connect("builder-inited", run_examples)
    app.connect("source-read", site_pages.links_of_the_site)
    app.connect("autodoc-process-docstring", site_docstrings.to_rst, priority=1)
    app.connect("autodoc-process-docstring", site_docstrings.separate_fields, priority=900)
    app.connect("html-page-context", without_source)


def run_examples(app):
    """Runs the pages of examples; ends the build where one prints something else than it says."""
    pages = [page for page in site_examples.EXAMPLES if page.stem not in site_examples.ELSEWHERE]
    wrong = [mistake for page in pages for mistake in site_examples.mistakes(page)]
    if wrong:
        raise ExtensionError("examples: " + "; ".join(wrong))


def without_source(app, page, template, context, doctree):
    """Takes the links to view and to edit a page from those that are generated: the repository has no such file."""
    if page.startswith("generated/"):
        context["theme_source_repository"] = None
