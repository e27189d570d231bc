"""A session from its beginning to its end, whoever ends it."""
