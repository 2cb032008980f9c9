"""`python -m mnemotrace` is the `mnemotrace` command."""

from mnemotrace.cli import main

if __name__ == "__main__":
    main()
