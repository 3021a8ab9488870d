# Runs in every kernel that the book's build starts (book/extension.py names this profile).
# Charts leave the kernel as data; book/static/book.js draws them without any network.
# All names stay inside one function, for those of this file are visible in every chapter.


def _show_charts_as_data():
    import html
    import json

    import altair as alt
    from altair.utils.schemapi import disable_debug_mode
    from IPython import get_ipython
    from IPython.display import HTML, display

    import book.charts  # noqa: F401  # the book's theme, for all chapters

    def div(spec):
        data = json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
        label = html.escape(spec.get("description", ""))
        script = f'<script type="application/json">{data}</script>'
        text = f"<noscript><p>A chart, which needs JavaScript. {label}</p></noscript>"
        return f'<div class="chart" role="figure" aria-label="{label}">{script}{text}</div>'

    def show_picker(picker):
        options = "".join(f"<option>{html.escape(name)}</option>" for name in picker.charts)
        control = f"<select>{options}</select>"
        if getattr(picker, "slider", False):  # from one end of something to the other
            names, last = html.escape(json.dumps(list(picker.charts))), len(picker.charts) - 1
            control = f'<input type="range" max="{last}" value="{last}" data-names="{names}" />'
            control += " <output></output>"
        label = f"<label>{html.escape(picker.label)} {control}</label>"
        charts = "".join(div(chart.to_dict()) for chart in picker.charts.values())
        display(HTML(f'<div class="choice">{label}{charts}</div>'))

    alt.renderers.register(
        "book", lambda spec, **_: {"text/html": div(spec), "text/plain": "<chart>"}
    )
    alt.renderers.enable("book")
    disable_debug_mode()  # a chart is validated when it is shown, so its parts need not be before
    formatter = get_ipython().display_formatter.ipython_display_formatter
    formatter.for_type_by_name("__main__", "ChartPicker", show_picker)  # its chapter defines it


_show_charts_as_data()
del _show_charts_as_data
