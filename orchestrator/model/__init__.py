"""Frozen nouns that every other part speaks in; no files, no clock, no environment."""
