"""Commands of the package with their output, as a terminal shows them."""

import io
import shlex
import warnings
from contextlib import redirect_stderr, redirect_stdout
from html import escape

from IPython.display import HTML

from annotated.machinery.cli.main import main


def printed(command: str) -> str:
    """What a command of `annotated` prints."""
    shown = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(shown), redirect_stderr(shown):
        warnings.filterwarnings("ignore", "IProgress not found")  # of tqdm, in a notebook
        main(shlex.split(command)[1:])
    return shown.getvalue()


def session(outputs: dict[str, str]) -> HTML:
    """Commands, which may have several lines, each above its output."""
    parts = []
    for command, output in outputs.items():
        typed = escape(" \\\n    ".join(line.strip() for line in command.splitlines()))
        lines = escape(output.expandtabs(1)).splitlines()
        said = "".join(f'\n<span class="go">{line}</span>' for line in lines)
        parts.append(f'<span class="gp">$ </span>{typed}{said}')
    text = "\n\n".join(parts)
    return HTML(f'<div class="session"><div class="highlight"><pre>{text}</pre></div></div>')
