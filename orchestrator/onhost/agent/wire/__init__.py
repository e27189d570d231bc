"""Frames in and out, and the loop that serves requests."""
