"""The head of each page: its buttons, its metadata and scripts; and the root of the site."""

from __future__ import annotations

import html
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from annotated.machinery.palette import COLORS, HEADS, PALETTE

# Nothing from other sites, and no text executed as code; `file:` is for pages on the disk, and
# WebAssembly for the readers' Python.
POLICY = (
    "default-src 'self' file: data: blob: 'unsafe-inline' 'wasm-unsafe-eval'; "
    "object-src 'none'; base-uri 'none'"
)


def add_buttons(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add buttons to download a page's notebook and, with a GitHub remote, to run it online."""
    buttons = context.get("header_buttons")
    notebook = Path(app.outdir, "notebooks", f"{Path(page).name}.ipynb")
    if buttons is None or doctree is None or not notebook.exists():
        return
    if app.config.book_repository:
        colab = "https://colab.research.google.com/github"
        url = f"{colab}/{app.config.book_repository}/blob/gh-pages/notebooks/{notebook.name}"
        buttons.append(button(url, "Open in Colab", "fas fa-rocket", "colab-button"))
        binder = f"https://mybinder.org/v2/gh/{app.config.book_repository}/HEAD"
        url = f"{binder}?urlpath=lab/tree/{page}.md"
        buttons.append(button(url, "Open in Binder", "fas fa-flask", "binder-button"))
    url = context["pathto"](f"notebooks/{notebook.name}", 1)
    buttons.append(button(url, "Download the notebook", "fas fa-download", "notebook-button"))


def button(url: str, text: str, icon: str, label: str) -> dict[str, str]:
    return {"type": "link", "url": url, "tooltip": text, "icon": icon, "label": label}


def describe(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add the metadata for link previews: title, first sentences, and a picture."""
    paragraphs = doctree.findall(nodes.paragraph) if doctree else []
    text = next((p.astext() for p in paragraphs if len(p.astext()) > 80), app.config.html_title)
    about = re.sub(r" \[[^]]*\]", "", " ".join(text.split()))  # without citations
    about = about if len(about) <= 200 else about[:200].rpartition(" ")[0] + " …"
    name = app.config.html_title
    title = app.env.titles[page].astext() if page in app.env.titles else name
    if page != app.config.root_doc and title != name:
        title += f" · {name}, executable"  # so that a shared page says where it is
    picture = context["pathto"]("_static/social.jpg", 1)
    if app.config.book_repository:  # a picture needs an absolute address, on GitHub Pages
        owner, _, name = app.config.book_repository.partition("/")
        picture = f"https://{owner}.github.io/{name}/_static/social.jpg"
    tags = {
        "description": about, "og:title": title, "og:description": about,
        "og:type": "article", "og:image": picture, "twitter:card": "summary_large_image",
    }  # fmt: skip
    # If storage is blocked, themes and search would fail; the substitute lasts as long as the page.
    storage = (
        'try { localStorage.setItem("_", ""); localStorage.removeItem("_"); } '
        "catch { const kept = {}; "
        'Object.defineProperty(window, "localStorage", { value: { '
        "getItem: (key) => kept[key] ?? null, setItem: (key, text) => { kept[key] = text; }, "
        "removeItem: (key) => { delete kept[key]; } } }); }"
    )
    context["default_mode"] = "auto"
    context["metatags"] = context.get("metatags", "") + (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />\n'
        f"<script>{storage}</script>\n"
    )
    context["metatags"] += "".join(
        f'<meta {"property" if ":" in name else "name"}="{name}" content="{html.escape(said)}" />\n'
        for name, said in tags.items()
    )


def colors() -> str:
    """A style sheet that declares the palette, `--blue` by name and `--head-0` by head.

    Letters in a color of the charts get enough contrast to be read on light and dark pages.
    """
    heads = {f"head-{i}": color for i, color in enumerate(HEADS)}
    named = " ".join(f"--{name}: {color};" for name, color in {**COLORS, **heads}.items())
    ink = "fill: color-mix(in srgb, {} 60%, var(--ink));"
    drawn = [*PALETTE, "var(--chart-sky)"]  # and the name of a color in still charts
    letters = (f':is(.chart, .enlarged) text[fill="{c}" i] {{ {ink.format(c)} }}' for c in drawn)
    return "\n".join([f"html {{ {named} }}", *letters, ""])


def write_front_door(app: Sphinx, error: Exception | None) -> None:
    """Write the root of the site, which redirects to the first page and repeats its metadata.

    People share this address, and services that preview links do not follow redirects.
    """
    if error or app.builder.name != "html":
        return
    first = app.builder.get_target_uri(app.config.root_doc)
    text = Path(app.outdir, first).read_text(encoding="utf-8")
    said = re.findall(r'<meta (?:property="\S+|name="description") content="[^"]*" />', text)
    tags = "\n".join(said).replace('content="../', 'content="')
    title = html.escape(app.config.html_title)
    page = f"""<!DOCTYPE html>
<html lang="{app.config.language}">
<head>
<meta charset="utf-8" />
<meta http-equiv="refresh" content="0; url={first}" />
<title>{title}</title>
{tags}
</head>
<body><p><a href="{first}">{title}</a></p></body>
</html>
"""
    Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def drop_scripts(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Drop what is unused: Thebe, which needs a host, MathJax, whose work is done, and styles.

    How pages look is said in `static/base.css` and `static/book.css` alone.
    """
    unwanted = re.compile(
        r"thebe|mathjax|sphinx-design|design-tabs|toggle|(pygments|copybutton|book-theme|mystnb)\S*\.css",
        re.IGNORECASE,
    )
    for files in "script_files", "css_files":
        given = context.get(files, [])
        context[files] = [file for file in given if not unwanted.search(f"{file}{vars(file)}")]
