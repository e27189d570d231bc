"""Servers that are units of systemd."""
