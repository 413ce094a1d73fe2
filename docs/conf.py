"""Sphinx: docs/ as a site. `make docs` builds it; a warning is an error."""

project = "kafka-rlm"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
nitpicky = True
# Headings have the anchors that GitHub gives them.
myst_heading_anchors = 4
# Options keep their two hyphens.
smartquotes = False

html_theme = "furo"
html_title = "kafka-rlm"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
