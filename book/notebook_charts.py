"""Charts in notebooks, without a network: a picture each, which a script brings to life."""

import base64
import html
import json
import sys
from typing import Any
from uuid import uuid4

import altair as alt
import vl_convert
from IPython.display import HTML, display

WIDTH = 744  # pixels of a picture that fills its column


def need_no_network() -> None:
    """Put the scripts of Vega into the notebook once, and draw all its charts with them.

    Programs that run no scripts, or each in a page of its own, show the pictures. Colab is one, but
    always has a network, so its charts remain as Altair shows them.
    """
    if "google.colab" in sys.modules:
        return
    display(HTML(f"<script>(() => {{{vl_convert.javascript_bundle()}\n}})();</script>"))
    alt.renderers.register("notebook", shown)
    alt.renderers.enable("notebook")


def shown(spec: dict[str, Any], **_: Any) -> dict[str, str]:
    """A chart as HTML: its picture, in whose place the script draws it alive."""
    fitted = dict(spec)
    if spec.get("width") == "container":
        fitted |= {"width": WIDTH, "autosize": {"type": "fit-x", "contains": "padding"}}
    picture = base64.b64encode(vl_convert.vegalite_to_png(fitted, scale=1.5)).decode()
    text, name = html.escape(spec.get("description", "")), f"chart-{uuid4().hex}"
    data = json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    drawn = f'<img alt="{text}" style="max-width: 100%" src="data:image/png;base64,{picture}">'
    script = f'window.vegaEmbed?.("#{name}", {data}, {{mode: "vega-lite", actions: false}})'
    page = f'<div id="{name}" style="width: 100%">{drawn}</div><script>{script}</script>'
    return {"text/html": page, "text/plain": "<chart>"}
