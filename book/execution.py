"""Execute the chapters in parallel, and only if one of their dependencies has changed."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from contextlib import suppress
from pathlib import Path

from contents import helpers, sources
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from jupyter_cache.executors import load_executor
from myst_nb.core.read import create_nb_reader
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_output
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from annotated.machinery.paper.quotation import Quotation, find_paper, quote

# Code whose results depend on files that a reader may have: corpora, or the PDF.
ASKS_THE_READER = re.compile(r"annotated\.machinery\.(corpora\.registry|paper)|ANNOTATED_")


def choose_cache(app: Sphinx, config) -> None:
    """Use a separate cache for each state of the package, the data and the reader's paper.

    The key of a cached notebook depends only on its code, but results also depend on the modules
    and files that the code uses.
    """
    root = Path(app.srcdir)
    files = [*root.glob("annotated/**/*.py"), *root.glob("data/*.toml"), *root.glob("data/*/**/*")]
    texts = [path.read_text(encoding="utf-8") for path in sources(root / "chapters").values()]
    files += helpers("\n".join(texts)).values()
    package, reader = hashlib.sha256(), hashlib.sha256(str(find_paper()).encode())
    for file in sorted(file for file in files if file.is_file() and "paper" not in file.parts):
        package.update(file.name.encode() + file.read_bytes())
    settings = {name: value for name, value in os.environ.items() if name.startswith("ANNOTATED_")}
    reader.update(str(sorted(settings.items())).encode())
    folder = Path(app.outdir).parent / ".jupyter_cache" / package.hexdigest()[:16]
    config.nb_execution_cache_path = str(folder / reader.hexdigest()[:16])


def execute_chapters(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Execute chapters into the cache, one per core, before Sphinx reads them.

    Sphinx itself would execute them one after another, because some of the theme's extensions
    forbid parallel reading. A chapter that fails here fails again and is reported when it is read.
    """
    cache = get_cache(env.mystnb_config.execution_cache_path)
    chapters = []
    for path in sorted(map(env.doc2path, pages), key=os.path.getsize, reverse=True):
        text = Path(path).read_text(encoding="utf-8")
        if reader := create_nb_reader(path, env.myst_config, env.mystnb_config, text):
            take_over(cache, reader.read(text), path)
            chapters.append(cache.add_nb_to_project(path, read_data=reader.read_fmt).pk)
    # A kernel that ended by itself would spend most of a second on unloading torch.
    NotebookClient.shutdown_kernel.default_value = "immediate"
    executor = load_executor("local-parallel", cache, logger=logging.getLogger("jupyter_cache"))
    executor.logger.setLevel(logging.INFO)  # name each chapter when it begins and ends
    executor.run_and_cache(filter_pks=chapters, timeout=env.mystnb_config.execution_timeout)


def take_over(cache: JupyterCacheAbstract, notebook: NotebookNode, path: str) -> None:
    """Reuse a chapter's results from a build with other settings if they do not depend on these.

    Cells that quote the paper depend on them but do nothing else, so only these cells run again.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    quotes = [cell for cell in code if "paper" in cell.metadata.get("tags", [])]
    if any(ASKS_THE_READER.search(cell.source) for cell in code if cell not in quotes):
        return
    with suppress(KeyError):
        cache.match_cache_notebook(notebook)
        return  # results for these settings exist
    for other in Path(cache.path).parent.glob("*/global.db"):
        with suppress(KeyError):
            found = get_cache(other.parent).merge_match_into_notebook(notebook)[1]
            for cell in found.cells:
                if "paper" in cell.metadata.get("tags", []):
                    cell.outputs = shown(eval(cell.source, {"quote": quote}))
            cache.cache_notebook_bundle(CacheBundleIn(found, path), check_validity=False)
            return


def shown(quotation: Quotation | None) -> list[NotebookNode]:
    """The output of a cell that shows a quotation."""
    if quotation is None:
        return []
    data = {"text/markdown": quotation._repr_markdown_(), "text/plain": str(quotation)}
    return [new_output("execute_result", data, execution_count=1)]


def executed(env: BuildEnvironment, page: str) -> NotebookNode | None:
    """A chapter with the outputs of its cells; None if it has no code or failed."""
    path = env.doc2path(page)
    text = Path(path).read_text(encoding="utf-8")
    if reader := create_nb_reader(path, env.myst_config, env.mystnb_config, text):
        with suppress(KeyError):
            cache = get_cache(env.mystnb_config.execution_cache_path)
            return cache.merge_match_into_notebook(reader.read(text))[1]
    return None
