"""Settings of the documentation site: plain Markdown, nothing fetched from elsewhere."""

import tomllib
from pathlib import Path

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

html_theme = "furo"
html_title = "gangline"
html_static_path = ["_static"]
html_show_sphinx = False
