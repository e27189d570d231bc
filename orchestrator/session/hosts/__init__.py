"""The hosts of a session: what is known of each, all at once, and that they stay in touch."""
