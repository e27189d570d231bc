"""The serving runtime of the miniature: processes, scheduling, models."""
