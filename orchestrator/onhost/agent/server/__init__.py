"""A server's life, in each of the ways in which it may be run."""
