"""Configuration of the documentation site (``make docs``), which needs no server or network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# one thread: products are small, and the workers of an example share the cores
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

HERE = Path(__file__).parent
# the authors' clip is third-party data: the example uses it if it is next to the repository
os.environ.setdefault("LOWTUCKER_CANDLE", str(HERE.parents[1] / "shared/data/candle_5_A.mat"))
sys.path.insert(0, str(HERE / "_ext"))

import lowtucker  # noqa: E402 -- after setting the number of threads

project = "lowtucker"
author = "the lowtucker developers"
project_copyright = f"2026, {author}"
version = release = lowtucker.__version__

extensions = [
    "accessible",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "commands",
    "docstrings",
    "family",
    "realdata",
    "statuses",
    "mathml",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "**/sg_execution_times.rst"]
templates_path = ["_templates"]
nitpicky = True
# types of other packages: builds have no network access to resolve them
nitpick_ignore_regex = [
    (r"py:.*", r"(abc|builtins|collections|enum|typing|numpy|scipy|sklearn|dask)\..*"),
    (r"py:class", r"(object|Enum|ABC|Protocol|UserWarning|ValueError|RuntimeError)"),
]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_validation_checks: set[str] = set()
html_math_renderer = "mathml"

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_srcset": ["2x"],
    "min_reported_time": 1,
    "show_signature": False,
    "capture_repr": (),
    "write_computation_times": False,
    "download_all_examples": False,
    "backreferences_dir": "api/examples",
    "doc_module": ("lowtucker",),
    "inspect_global_variables": False,
    "remove_config_comments": True,
    "default_thumb_file": str(HERE / "images" / "phase.png"),
}

html_theme = "pydata_sphinx_theme"
html_title = "lowtucker"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["lowtucker.css"]
html_js_files = [("lowtucker.js", {"defer": "defer"})]
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_show_sphinx = False
html_copy_source = False
html_domain_indices = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {
        "text": "lowtucker",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
    },
    "navbar_align": "content",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "gallery/index": []},
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 4,
}
