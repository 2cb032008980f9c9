"""The `mnemotrace` command."""
