"""Convert chapters to plain notebooks for Jupyter and Colab, without Sphinx syntax."""

from __future__ import annotations

import ast
import base64
import html
import re
import subprocess
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jupytext
import nbformat
from bibliography import labels
from contents import ROOT, helpers, sources
from links import paper_url
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from annotated.by_hand import PARTS

HIDDEN = {"paper", "hide-input", "hide-cell"}  # tags of cells with folded code
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}  # for Jupyter, and for Colab
VERDICT = re.compile(r"^claim\(", re.MULTILINE)  # in cells whose code is folded without a tag

# The first cell of every notebook. `REMOTE` becomes the address that the build found, or None.
INSTALL = """\
# @title Install the package
# Where `annotated` is missing, it is installed from the clone that contains this notebook, from
# a wheel in the same folder, or from the repository where this notebook was built.
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from subprocess import run


def is_clone(folder):
    project = folder / "pyproject.toml"
    return project.is_file() and 'name = "annotated-attention"' in project.read_text("utf-8")


if find_spec("annotated") is None:
    here = Path.cwd()
    clone = next(filter(is_clone, [here, *here.parents]), None)
    wheels = sorted(here.glob("annotated_attention-*.whl"))
    remote = REMOTE
    if clone:
        sys.path.insert(0, str(clone))
        source = ["--editable", f"{clone}[chapters]"]
    elif wheels:
        source = [f"{wheels[-1]}[chapters]"]
    else:
        source = [f"annotated-attention[chapters] @ git+{remote}"] if remote else None
    if source:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", *source]
        done = run(pip, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr)
        invalidate_caches()
    if find_spec("annotated") is None:
        raise ModuleNotFoundError(
            "This chapter needs the package `annotated`. Open the notebook in a clone of the "
            "repository, or put the package's wheel (annotated_attention-….whl) into the folder "
            "of this notebook, and run this cell again."
        )"""

HELPERS = """\
# @title Modules of the book that are not in the package
import sys
from types import ModuleType

sys.modules["book"] = ModuleType("book")


def _add_module(name, source):
    place, module = "book", sys.modules["book"]
    for part in name.split("."):
        place += f".{part}"
        parent, module = module, sys.modules.setdefault(place, ModuleType(place))
        setattr(parent, part, module)
    exec(compile(source, place.replace(".", "/") + ".py", "exec"), vars(module))

"""
HELPER = """
_add_module("{name}", r'''
{source}''')
"""
DRAWS = re.compile(r"\b(altair|attention_lines|heat_map)\b")  # charts of Vega
CHARTS = """
from book.notebook_charts import need_no_network

need_no_network()"""

TITLE = "*A chapter of the executable edition of “Attention Is All You Need”.*"
QUOTES = """

*Cells named “The paper” show its own sentences once you have downloaded it: \
run `!annotated paper get` after the next cell. Until then they show nothing.*"""

MARK = r"(?:§|Abstract|Acknowledgements|Figure|Table|Footnote)[^*]*"
ON_THE_SITE = (
    "*On the site, the build collects the claims of all chapters here. "
    "In a notebook, each verdict is shown below its cell.*"
)
LIVE = "*On the site, a model runs here, in the page itself.*"

TURN = re.compile(r"^```\{turn\} (\w+)\n```$", re.MULTILINE)
TURN_CELL = """\
{task}
from annotated.by_hand import check


{skeleton}

check("{name}", my_{name})"""  # its name keeps the chapter's function


def remote() -> str | None:
    """Address from which everyone can clone this repository, according to its remote `origin`.

    Returns: An HTTPS address without a user name or password, or None if there is none.
    """
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    address = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    address = re.sub(r"^(ssh://)?git@github\.com[:/]", "https://github.com/", address)
    found = re.fullmatch(r"https://(?:[^/@]*@)?([\w.:/~-]+?)(?:\.git)?/?", address)
    return f"https://{found[1]}" if found else None


def write_notebooks(root: Path, folder: Path, remote: str | None, prepare=dict) -> None:
    """Write a notebook for every chapter that has code.

    remote: from where a notebook installs the package if it finds neither a clone nor a wheel
    prepare: chooses and changes the notebooks, given and returned by the chapter's path
    """
    chapters = sources(root / "chapters").values()
    read = {path: jupytext.read(path, fmt="md:myst") for path in chapters}
    coded = {p: n for p, n in read.items() if any(c.cell_type == "code" for c in n.cells)}
    notebooks = prepare(coded)
    pages = {path.stem for path in notebooks}
    targets = {name: path.stem for path in read for name in anchors(path)}
    references = labels(root / "book" / "references.bib")
    folder.mkdir(parents=True, exist_ok=True)
    for path, notebook in notebooks.items():
        known = {"pages": pages, "targets": targets, "references": references}
        text = partial(plain_text, chapter=path, **known)
        plain = plain_notebook(notebook, text, remote)
        nbformat.write(plain, folder / f"{path.stem}.ipynb")


def anchors(chapter: Path) -> list[str]:
    """Targets that a chapter defines: lines such as `(eq-1)=`."""
    return re.findall(r"^\(([\w-]+)\)=$", chapter.read_text(encoding="utf-8"), re.MULTILINE)


def with_turns(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells, where each place to write a part of the Transformer is a cell with its check."""
    for cell in cells:
        if cell.cell_type != "markdown" or not TURN.search(cell.source):
            yield cell
            continue
        for i, text in enumerate(TURN.split(cell.source)):
            if i % 2:
                part = PARTS[text]
                skeleton = part["skeleton"].replace(f"def {text}", f"def my_{text}")
                task = textwrap.indent(textwrap.fill(f"Your turn. {part['task']}", 88), "# ")
                yield new_code_cell(TURN_CELL.format(name=text, task=task, skeleton=skeleton))
            elif text.strip():
                yield new_markdown_cell(text.strip(), metadata=cell.metadata)


def plain_notebook(notebook: NotebookNode, text, remote: str | None) -> NotebookNode:
    """The notebook with an installing cell first, plain Markdown, and folded cells.

    Modules of `book/` that its cells import follow as the source of a folded cell, because readers
    may have the notebook and the package alone. There, charts are told to need no network.
    """
    notebook.metadata.pop("jupytext", None)
    notebook.cells = [*with_turns(notebook.cells)]
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    used = {name: path.read_text(encoding="utf-8") for name, path in helpers(code).items()}
    drawing = [code, *(text for name, text in used.items() if name != "charts")]
    charts = CHARTS if any(map(DRAWS.search, drawing)) else ""
    used |= {name: path.read_text(encoding="utf-8") for name, path in helpers(charts).items()}
    if used:
        made = "".join(HELPER.format(name=name, source=text) for name, text in used.items())
        notebook.cells.insert(0, new_code_cell(HELPERS + made + charts, metadata=dict(FOLDED)))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = text(cell.source)
        else:
            fold(cell)
    first = new_code_cell(INSTALL.replace("REMOTE", f'"{remote}"' if remote else "None"))
    first.metadata |= FOLDED
    notebook.cells.insert(0, first)
    quotes = any("paper" in cell.metadata.get("tags", []) for cell in notebook.cells)
    notebook.cells.insert(0, new_markdown_cell(TITLE + QUOTES * quotes))
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"  # random by default, which would make files differ
    return notebook


def fold(cell: NotebookNode) -> None:
    """Hide the source of a cell in Jupyter and Colab if its tags ask for it, or it is a verdict."""
    tags = set(cell.metadata.get("tags", []))
    if tags & HIDDEN or VERDICT.search(cell.source):
        names = {"solution": "Solution", "check": "Check", "paper": "The paper"}
        name = next((names[tag] for tag in names if tag in tags), "Code")
        cell.metadata |= FOLDED
        cell.source = f"# @title {name}\n{cell.source}"


def plain_text(
    source: str, chapter: Path, pages: set[str], targets: dict[str, str], references: dict
) -> str:
    """MyST Markdown to Markdown."""

    def cite(match: re.Match) -> str:
        keys = [key.strip() for key in match.group(1).split(",")]
        return "".join(f"\\[{references.get(key, key)}\\]" for key in keys)

    def link(match: re.Match) -> str:
        text, anchor = match.groups()
        page = targets.get(anchor, chapter.stem)
        file = "" if page == chapter.stem else f"{page}.ipynb"
        return f"[{text}]({file}#{anchor})" if page in pages else text

    def link_page(match: re.Match) -> str:
        text, page, anchor = match.groups(default="")  # all notebooks are in one folder
        return f"[{text}]({page}.ipynb{anchor})" if page in pages else text

    def image(match: re.Match) -> str:
        data = base64.b64encode((chapter.parent / match.group(2)).read_bytes()).decode()
        return f'<img alt="{html.escape(match.group(1))}" src="data:image/svg+xml;base64,{data}">'

    def mark(match: re.Match) -> str:
        return f"> [**{match.group(1)}**]({paper_url(match.group(1))})"

    def quoted(match: re.Match) -> str:
        source = (chapter.parent / match[1]).read_text(encoding="utf-8")
        if match[2]:
            node: ast.AST = ast.parse(source)
            for name in match[2].split("."):
                node = next(n for n in ast.iter_child_nodes(node) if getattr(n, "name", "") == name)
            source = ast.get_source_segment(source, node, padded=True) or ""
        if match[3]:
            start = source.rindex("\n", 0, source.index(match[3]))
            source = source[start : source.index("\n", source.index(match[4], start))]
        return f"```python\n{textwrap.dedent(source).strip()}\n```"

    included = r"^```\{literalinclude\} (\S+\.py)\n(?::pyobject: (\S+)\n)?"
    included += r"(?::start-at: (.+)\n:end-at: (.+)\n)?(?::dedent: \d+\n)?```$"
    source = re.sub(included, quoted, source, flags=re.MULTILINE)
    script = r"^```\{literalinclude\} (?:\.\./)+(\S+\.js)\n.*?^```$"
    on_the_site = r"*On the site, this part of `\1` is printed here.*"
    source = re.sub(script, on_the_site, source, flags=re.MULTILINE | re.DOTALL)
    raw = r"^```\{raw\} html\n<div class=\"(scoreboard|claims-\w+)\"></div>\n```$"
    source = re.sub(raw, ON_THE_SITE, source, flags=re.MULTILINE)
    contents = r"^## All pages\n\n```\{tableofcontents\}\n```$"
    source = re.sub(contents, "", source, flags=re.MULTILINE)
    source = re.sub(r"^```\{live\}.*?^```$", LIVE, source, flags=re.MULTILINE | re.DOTALL)
    source = re.sub(r"^\(([\w-]+)\)=$", r'<a id="\1"></a>\n', source, flags=re.MULTILINE)
    source = re.sub(r"\{cite(?::\w+)?\}`([^`]+)`", cite, source)
    download = r"\{download\}`([^`<]+) <(?:\.\./)+([^>]+)>`"
    source = re.sub(download, r"\1 (`\2` in the repository)", source)
    source = re.sub(r"\[([^\]]+)\]\(#([\w-]+)\)", link, source)
    source = re.sub(r"\[([^\]]+)\]\((?:[\w.]+/)?([\w-]+)\.md(#[\w-]+)?\)", link_page, source)
    source = re.sub(r"!\[([^\]]*)\]\(([\w/-]+\.svg)\)", image, source)
    return re.sub(rf"^> \*\*({MARK})\*\*", mark, source, flags=re.MULTILINE)
