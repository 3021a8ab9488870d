# Runs in every kernel that the book's build starts (book/extension.py names this profile).
# Charts leave the kernel as data; book/static/book.js draws them without any network.
# All names stay inside one function, for those of this file are visible in every chapter.


def _show_charts_as_data():
    import html
    import json

    import altair as alt
    from altair.utils.schemapi import disable_debug_mode

    import book.charts  # noqa: F401  # the book's theme, for all chapters

    def div(spec):
        data = json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
        label = html.escape(spec.get("description", ""))
        script = f'<script type="application/json">{data}</script>'
        text = f"<noscript><p>A chart, which needs JavaScript. {label}</p></noscript>"
        return f'<div class="chart" role="figure" aria-label="{label}">{script}{text}</div>'

    alt.renderers.register(
        "book", lambda spec, **_: {"text/html": div(spec), "text/plain": "<chart>"}
    )
    alt.renderers.enable("book")
    disable_debug_mode()  # a chart is validated when it is shown, so its parts need not be before


_show_charts_as_data()
del _show_charts_as_data
