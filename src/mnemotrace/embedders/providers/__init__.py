"""The embedding providers by key: what each takes, and how it is asked."""
