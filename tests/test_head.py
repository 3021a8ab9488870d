"""book/head.py: the buttons of a page."""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sphinx", reason="needs the extra `book`")

from head import add_buttons


@pytest.mark.parametrize("repository", ["me/mine", None])
def test_a_page_offers_itself_as_a_notebook(tmp_path: Path, repository: str | None):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "2-background.ipynb").touch()
    config = SimpleNamespace(book_repository=repository)
    app = SimpleNamespace(outdir=tmp_path, config=config)
    context = {"header_buttons": [], "pathto": lambda path, resource: f"../{path}"}
    add_buttons(app, "chapters/2-background", "page.html", context, object())
    urls = [button["url"] for button in context["header_buttons"]]
    *online, file = urls
    assert file == "../notebooks/2-background.ipynb"
    assert online == (repository is not None) * [
        "https://colab.research.google.com/github/me/mine/blob/gh-pages/notebooks/2-background.ipynb",
        "https://mybinder.org/v2/gh/me/mine/HEAD?urlpath=lab/tree/chapters/2-background.md",
    ]
