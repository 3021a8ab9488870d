"""Sphinx extension of this book: its parts, and when each of them runs."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import vl_convert
from cells import (
    DETAILS,
    Cells,
    InlineFigures,
    LargeCharts,
    PaperLayer,
    ResultsFirst,
    Symbols,
)
from execution import choose_cache, execute_chapters
from finish import finish_pages, mend_body
from head import add_buttons, colors, describe, drop_scripts, write_front_door
from links import Modules, Offered, Reference, details, read_docstring
from live import Live, Turn, write_models
from notebooks import remote, write_notebooks
from rail import add_rail
from reading import add_way, fold_experiments
from sphinx.application import Sphinx
from verdicts import Claims, collect_claims

BOOK = Path(__file__).resolve().parent


def repository() -> str | None:
    """owner/name of the GitHub repository that this clone comes from, if it does."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", remote() or "")
    return found[1] if found else None


def looks() -> str:
    """Digest of the files that affect every page; when it changes, all pages are rendered again."""
    files = sorted(BOOK.glob("*.py")) + sorted(BOOK.glob("static/*"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def prepare(app: Sphinx) -> None:
    """Configure kernels to return charts as data, and write scripts, notebooks and models."""
    os.environ["IPYTHONDIR"] = str(BOOK / "ipython")
    # Tensors are small, so threads gain nothing and slow down a busy machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    scripts = Path(app.outdir).parent / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    bundle = scripts / "vega.js"
    if not bundle.exists():
        # Wrapped in a function to keep its names local.
        bundle.write_text(f"(()=>{{{vl_convert.javascript_bundle()}\n}})();", encoding="utf-8")
    (scripts / "palette.css").write_text(colors(), encoding="utf-8")
    app.config.html_static_path.append(str(scripts))
    write_notebooks(Path(app.srcdir), Path(app.outdir) / "notebooks", remote())
    write_models(Path(app.srcdir) / "chapters", Path(app.outdir) / "models")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("book_repository", repository(), "html")
    app.add_config_value("book_looks", looks(), "html")
    app.add_node(details, html=DETAILS)
    app.add_directive("offered", Offered)
    app.add_directive("live", Live)
    app.add_directive("turn", Turn)
    at_cells = Cells, PaperLayer, Claims, Modules
    for transform in (*at_cells, InlineFigures, LargeCharts, Symbols, ResultsFirst, Reference):
        app.add_post_transform(transform)
    app.connect("autodoc-process-docstring", read_docstring, priority=400)  # runs before napoleon
    app.connect("config-inited", choose_cache, priority=100)
    app.connect("builder-inited", prepare)
    app.connect("env-before-read-docs", execute_chapters)
    app.connect("env-updated", collect_claims)
    changes = add_buttons, describe, drop_scripts, mend_body, fold_experiments, add_way, add_rail
    for change in changes:
        app.connect("html-page-context", change, priority=900)
    app.connect("build-finished", finish_pages)
    app.connect("build-finished", write_front_door)
    app.add_css_file("palette.css")
    for script in "elements.js", "book.js":
        app.add_js_file(script, loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
