"""Carries plans out on many hosts, and can always undo them."""
