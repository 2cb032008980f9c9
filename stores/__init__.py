"""Where memory lives: the storage contract and its engines, one engine a file."""
