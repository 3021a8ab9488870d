"""Chat templates of language models, filled in as transformers does it.

A template is a program in Jinja that a stranger wrote. It runs in Jinja's sandbox, in a process
with limits of time and memory, because a few lines may require any amount of either.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from annotated.machinery.limits import run_limited

# Limits of time and of memory, and characters of a conversation.
_SECONDS, _MEMORY, _LONGEST = 10, 1 << 30, 10_000_000


def fill_template(
    template: str, messages: Sequence[Mapping[str, str]], symbols: Mapping[str, str]
) -> str:
    """The text of a conversation, up to the model's answer.

    Args:
        template: in Jinja.   messages: each with its role and content.
        symbols: of the tokenizer by name, such as bos_token.

    Raises: ValueError if the template cannot be filled in within the limits, or refuses to be.
    """
    names: dict[str, Any] = {"messages": [*map(dict, messages)], "tools": None, "documents": None}
    names |= {"add_generation_prompt": True, **symbols}
    return str(run_limited(_fill, template, names, seconds=_SECONDS, memory=_MEMORY))


class _Generation(Extension):
    """The block that marks the model's answers for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Any) -> str:
        return caller()


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson` as templates expect it; Jinja's own escapes HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _fill(template: str, names: dict[str, Any]) -> str:
    environment = ImmutableSandboxedEnvironment(extensions=[loopcontrols, _Generation])
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    text = environment.from_string(template).render(**names)
    if len(text) > _LONGEST:
        raise ValueError(f"one of {len(text):,} characters")
    return text
