"""How the chapters are executed: side by side, and only when something they depend on changed."""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from myst_nb.core.read import create_nb_reader
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from annotated.paper.quotation import find_paper


def choose_cache(app: Sphinx, config) -> None:
    """Keep results apart that came from another package, other data or model, or without the paper.

    The cache of executed notebooks looks at a chapter's code alone; what the code imports and
    reads matters as much.
    """
    root = Path(app.srcdir)
    files = [*root.glob("annotated/**/*.py"), *root.glob("data/*.toml"), *root.glob("data/*/**/*")]
    said = find_paper(), os.environ.get("ANNOTATED_FIGURES_MODEL")
    digest = hashlib.sha256(str(said).encode())
    for file in sorted(file for file in files if file.is_file() and "paper" not in file.parts):
        digest.update(file.name.encode() + file.read_bytes())
    cache = Path(app.outdir).parent / ".jupyter_cache" / digest.hexdigest()[:16]
    config.nb_execution_cache_path = str(cache)


def execute_chapters(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Execute chapters into the cache, one on each core, where their reading will find the results.

    Sphinx would execute one after the other, for some of the theme's extensions do not let it read
    pages side by side. A chapter that fails here fails again when it is read, and is reported then.
    """
    cache = get_cache(env.mystnb_config.execution_cache_path)
    chapters = []
    for path in sorted(map(env.doc2path, pages), key=os.path.getsize, reverse=True):
        text = Path(path).read_text(encoding="utf-8")
        if reader := create_nb_reader(path, env.myst_config, env.mystnb_config, text):
            chapters.append(cache.add_nb_to_project(path, read_data=reader.read_fmt).pk)
    executor = load_executor("local-parallel", cache, logger=logging.getLogger("jupyter_cache"))
    executor.logger.setLevel(logging.INFO)  # name each chapter that begins and ends
    executor.run_and_cache(filter_pks=chapters, timeout=env.mystnb_config.execution_timeout)


def executed(env: BuildEnvironment, page: str) -> NotebookNode | None:
    """A chapter with the outputs of its cells; None if it has no code, or failed."""
    path = env.doc2path(page)
    text = Path(path).read_text(encoding="utf-8")
    reader = create_nb_reader(path, env.myst_config, env.mystnb_config, text)
    if reader is None:
        return None
    cache = get_cache(env.mystnb_config.execution_cache_path)
    with suppress(KeyError):
        return cache.merge_match_into_notebook(reader.read(text))[1]
    return None
