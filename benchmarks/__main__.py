"""The command `python -m benchmarks`, which imports what it runs and nothing else."""

import sys
from importlib import import_module


def main(given: list[str] | None = None) -> None:
    given = sys.argv[1:] if given is None else given
    if given[:1] in (["data"], ["gpu"], ["page"], ["mutations"]):
        import_module(f"benchmarks.{given[0]}").main(given[1:])
    else:
        import_module("benchmarks.measure").main(given)


if __name__ == "__main__":
    main()
