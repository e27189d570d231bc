"""Processes: what they are, and how one is started exactly as another was."""
