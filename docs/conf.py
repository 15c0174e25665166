"""Settings of the documentation site: plain Markdown, nothing fetched from elsewhere."""

import tomllib
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

from gangline import _core
from gangline.policies.registry import registry

project = "gangline"
author = "The gangline authors"
copyright = "The gangline authors, Apache-2.0"
PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
release = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = []
# Pages link to files outside docs/; tests/docs checks that every such file exists.
suppress_warnings = ["myst.xref_missing"]

autodoc_typehints = "none"  # types stand in the numpy-style docstrings
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Names in single backticks of a docstring are links where something public has the name.
default_role = "py:obj"

html_theme = "furo"
html_title = "gangline"
html_static_path = ["_static"]
html_css_files = ["phone.css"]
html_show_sphinx = False

POLICY_CLASSES = "<!-- one section per policy: docs/conf.py -->"


def policy_classes() -> str:
    """Return a section per policy of the registry: its page, its class, its parameters."""
    pages = {policy["name"]: policy["page"] for policy in _core.registry()}
    parts = [
        "```{eval-rst}\n.. autoclass:: gangline.policies.PolicyBase\n   :members:",
        ".. autoclass:: gangline.policies.PolicyConfig",
        ".. autoclass:: gangline.policies.GavelConfig\n```\n",
    ]
    for name, kind in registry.items():
        parts += [f"## {name}\n", f"[How it works](../policies/{pages[name]}.md).\n"]
        parts += ["```{eval-rst}", f".. autoclass:: gangline.policies.{kind.__name__}", "```\n"]
    return "\n".join(parts)


def fill_in(_app, _page: str, source: list[str]) -> None:
    """Put the sections in place of the mark."""
    source[0] = source[0].replace(POLICY_CLASSES, policy_classes())


def unlink_words(_app, doctree: nodes.document) -> None:
    """Take links from words of types, such as `one of rack`: a method may have the name."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link.get("refspecific") and link["reftarget"].islower() and "." not in link["reftarget"]:
            link.replace_self(link.children)


def setup(app) -> None:
    """Connect the handlers of this site."""
    app.connect("source-read", fill_in)
    app.connect("doctree-read", unlink_words)
