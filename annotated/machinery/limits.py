"""A function in a process of its own, with limits of time and of memory.

What a stranger's file describes may require any amount of either.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any


def run_limited(function: Callable[..., Any], *given: Any, seconds: float, memory: int) -> Any:
    """The result of a function of a module; it and the arguments become JSON. memory: in bytes.

    Raises: ValueError, in one line, if the function raises an error or needs more than allowed.
    """
    # Isolated, because `python -m` would import modules of the current folder before others.
    code = f"import sys; sys.path[:] = {[*filter(None, sys.path)]!r}; "
    code += f"from {__name__} import _main; _main(*sys.argv[1:])"
    words = [function.__module__, function.__name__, str(memory)]
    command, text = [sys.executable, "-I", "-c", code, *words], json.dumps(given).encode()
    try:
        done = subprocess.run(command, input=text, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ValueError(f"one that takes more than {seconds} seconds") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        raise ValueError(lines[-1] if lines else "one that ended the process")
    return json.loads(done.stdout)


def _main(module: str, name: str, memory: str) -> None:
    """Print the function's result; standard input contains its arguments."""
    function, most = getattr(import_module(module), name), int(memory)
    with suppress(ImportError, ValueError, OSError):  # Windows has no limits; macOS not this one
        import resource

        limits = {*resource.getrlimit(resource.RLIMIT_AS)} - {resource.RLIM_INFINITY}
        most = min(limits | {most})  # a process cannot raise its own limit
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        print(json.dumps(function(*json.load(sys.stdin))))
    except MemoryError:
        sys.exit(f"one that needs more than {most:,} bytes of memory")
    except Exception as error:  # a file may cause any
        sys.exit(" ".join(str(error).split()) or type(error).__name__)
