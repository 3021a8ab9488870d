"""Books of a few pages, built by Sphinx as the whole one is."""

import io
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils


def notebook(code: str) -> str:
    """A page with one cell."""
    head = (
        "---\nfile_format: mystnb\norphan: true\nkernelspec:\n  name: python3\n---\n\n# Title\n\n"
    )
    return f"{head}```{{code-cell}} ipython3\n{code}\n```\n"


def build(folder: Path, *extensions: Any, **config: object) -> str:
    """Build the pages of a folder into `folder / "out"`, and return the warnings.

    Args:
        extensions: besides myst_nb: names, or functions that are given the application.
    """
    named = [extension for extension in extensions if isinstance(extension, str)]
    settings = {
        "extensions": ["myst_nb", *named],
        "html_theme": "basic",
        "nb_execution_cache_path": str(folder / "cache"),
        "exclude_patterns": ["out", "tree", "cache", "jupyter_execute"],
    }
    warnings, places = io.StringIO(), (folder / "out", folder / "tree")
    with patch_docutils(), docutils_namespace():
        app = Sphinx(folder, None, *places, "html", settings | config, None, warnings)
        for extension in extensions:
            if extension not in named:
                extension(app)
        app.build()
    return warnings.getvalue()
