# Runs in every kernel that the book's build starts (book/extension.py names this profile).
# Charts leave the kernel as data; book/static/book.js draws them without any network.
import json

import altair as alt


def _book(spec, **_):
    data = json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    alt_text = json.dumps(spec.get("description", ""))[1:-1].replace('"', "&quot;")
    html = f'<div class="chart" role="img" aria-label="{alt_text}">'
    html += f'<script type="application/json">{data}</script></div>'
    return {"text/html": html, "text/plain": "<chart>"}


alt.renderers.register("book", _book)
alt.renderers.enable("book")
