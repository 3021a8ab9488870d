"""`python -m annotated`, the same as the command `annotated`."""

from annotated.machinery.cli.main import main

if __name__ == "__main__":
    main()
