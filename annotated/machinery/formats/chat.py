"""Chat templates of language models, filled in as transformers does it.

A template is a program in Jinja that a stranger wrote. It runs in Jinja's sandbox, in a process
with limits of time and memory, because a few lines may require any amount of either. That process
runs this file as a script, so the file imports nothing else of the package.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Limits of time and of memory, and characters of a conversation.
_SECONDS, _MEMORY, _LONGEST = 10, 1 << 30, 10_000_000
_RUN = "import runpy, sys; sys.path += sys.argv[2:]; runpy.run_path(sys.argv[1], None, '__main__')"


def fill_template(
    template: str, messages: Sequence[Mapping[str, str]], symbols: Mapping[str, str]
) -> str:
    """The text of a conversation, up to the model's answer.

    Args:
        template: in Jinja.   messages: each with its role and content.
        symbols: of the tokenizer by name, such as bos_token.

    Raises: ValueError if the template cannot be filled in within the limits, or refuses to be.
    """
    names = {"messages": [*map(dict, messages)], "tools": None, "documents": None}
    given = json.dumps([template, names | {"add_generation_prompt": True} | dict(symbols)])
    # -I keeps modules of the current folder from replacing those of Python.
    command = [sys.executable, "-I", "-c", _RUN, __file__, *filter(None, sys.path)]
    try:
        done = subprocess.run(command, input=given.encode(), capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(f"one that takes more than {_SECONDS} seconds") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        raise ValueError(lines[-1] if lines else "one that ended the process")
    return str(json.loads(done.stdout))


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


def _main() -> None:
    """Print the filled template as JSON; standard input contains it and its names."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no limits; macOS not this one
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = _MEMORY if most == resource.RLIM_INFINITY else min(_MEMORY, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    try:
        sys.stdout.write(json.dumps(_fill(*json.load(sys.stdin))))
    except MemoryError:
        sys.exit(f"one that needs more than {_MEMORY:,} bytes")
    except Exception as error:  # a template may cause any
        sys.exit(" ".join(str(error).split()) or type(error).__name__)


if __name__ == "__main__":
    _main()
