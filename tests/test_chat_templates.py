"""Chat templates: filled in as by transformers, and within limits whatever they contain."""

import time
from itertools import product

import pytest

from annotated.machinery.formats import chat
from annotated.machinery.formats.chat import fill_template

SYMBOLS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
MESSAGE = "a<b & 'c' \"d\"\n\u00e9 \U0001f600 {{ 1 }} {% if %}"
OPENED = [{"role": "user", "content": MESSAGE}]
TURN = "{% for m in messages %}[{{ m['role'] }}]{{ m.content }}{% endfor %}"
PARTS = {
    "symbols": "{{ bos_token }}|{{ eos_token + bos_token }}|{{ unk_token }}|{{ sep_token }}",
    "tools": "{% if tools is not none %}T{% endif %}{% if tools %}t{% endif %}",
    "documents": "{{ documents is none }}{% if documents %}d{% endif %}",
    "the prompt of an answer": "{% if add_generation_prompt %}[assistant]{% endif %}",
    "a date": "{% if strftime_now is defined %}{{ strftime_now('%Y-%m') }}{% endif %}",
    "json": "{{ messages | tojson }}{{ messages|tojson(indent=4) }}",
    "more json": "{{ {'b': 'ü', 'a': [none]}|tojson(ensure_ascii=True, sort_keys=True) }}",
    "json's separators": "{{ messages | tojson(separators=(',', ':')) }}",
    "break": "{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "continue": "{% for i in 'abc' %}{% if i < 'b' %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "generation": "{% generation %}{{ bos_token }}{% set x = 3 %}{% endgeneration %}{{ x }}",
    "a macro": "{%- macro f(x) -%} <{{ x|trim }}> {%- endmacro -%}{{ f(' a ') }}",
    "a namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.n }}{{ dict(a=1) }}",
    "white space": "  {% if true %}  \n  x\n  {% endif %}\n  {#- c -#}  y \n\n",
    "slices": "{{ messages[::-1][0].content[2:5].upper() }}{{ messages[0].role.split('s') }}",
    "undefined": "{{ x }}{{ x is defined }}{{ messages[0].tool_calls is defined }}",
}


def theirs(template: str) -> str:
    render = pytest.importorskip("transformers.utils.chat_template_utils").render_jinja_template
    opened = [OPENED]
    [text], _ = render(opened, chat_template=template, add_generation_prompt=True, **SYMBOLS)
    return text


@pytest.mark.parametrize("name", PARTS)
def test_a_template_is_filled_in_as_transformers_does_it(name: str):
    template = PARTS[name] + TURN
    assert fill_template(template, OPENED, SYMBOLS) == theirs(template)


def test_parts_of_templates_in_one_process():
    """Two hundred templates of two parts each, without the process of each."""
    names = {"messages": OPENED, "tools": None, "documents": None}
    names |= {"add_generation_prompt": True, **SYMBOLS}
    for one, other in product(PARTS.values(), repeat=2):
        assert chat._fill(one + TURN + other, dict(names)) == theirs(one + TURN + other)


MANY = "{% for a in range(99999) %}"
HOSTILE = {
    "time": (MANY * 3 + "{% endfor %}" * 3, "more than 1 seconds"),
    "a power": ("{{ 10 ** (10 ** 9) }}", "more than 1 seconds"),
    "a product": ("{{ 'a' * 10 ** 11 }}", "more than 1,073,741,824 bytes"),
    "doublings": (
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}"
        "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "more than 1,073,741,824 bytes|more than 1 seconds",
    ),
    "a field": ("{{ '%099999999999d' % 1 }}", "more than 1,073,741,824 bytes"),
    "an output": (MANY + "{{ 'a' * 1000 }}{% endfor %}", "99,999,000 characters|seconds"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "depth": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "recursion"),
    "a refusal": ("{{ raise_exception('only\nusers') }}", "only users"),
    "syntax": ("{% for %}", "Expected an expression"),
    "a loop's end outside": ("{% break %}", "outside loop"),
    "a class": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "a change": ("{{ messages.append(1) }}", "unsafe"),
    "globals": ("{{ cycler.__init__.__globals__ }}", "unsafe|undefined"),
    "a file": ("{% include '/etc/passwd' %}", "no loader"),
    "arithmetic": ("{{ 1 / 0 }}", "division by zero"),
    "an unknown name": ("{{ a.b }}", "'a' is undefined"),
    "an unknown filter": ("{{ 1 | a }}", "No filter named"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_without_limits_is_refused(name: str, monkeypatch: pytest.MonkeyPatch):
    template, message = HOSTILE[name]
    monkeypatch.setattr(chat, "_SECONDS", 1 if "1 seconds" in message else 30)
    start = time.monotonic()
    with pytest.raises(ValueError, match=message):
        fill_template(template, OPENED, {})
    assert time.monotonic() - start < 30


def test_modules_of_the_current_folder_are_not_run(tmp_path, monkeypatch):
    for name in "json", "runpy", "jinja2", "datetime":
        (tmp_path / f"{name}.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    assert fill_template("{{ bos_token }}\ud800", OPENED, SYMBOLS) == "<s>\ud800"
