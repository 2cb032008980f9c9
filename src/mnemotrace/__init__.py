"""Agent memory you can trace."""
