"""How the documentation is built; `make docs` builds it, without network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]
os.environ.setdefault("MPLBACKEND", "Agg")

import pcsda  # noqa: E402

project = "pcsda"
author = "The pcsda developers"
copyright = author
release = version = pcsda.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "measured",
    "run",
]
exclude_patterns = ["_build", "generated/*.md"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "fieldlist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "gallery_order.ByLearning",
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "show_memory": False,
    "plot_gallery": True,
    "matplotlib_animations": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "promote_jupyter_magic": False,
    "image_srcset": ["2x"],
}

html_theme = "pydata_sphinx_theme"
html_title = "pcsda"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_use_index = False
html_theme_options = {
    "logo": {"text": "pcsda"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "start": []}
