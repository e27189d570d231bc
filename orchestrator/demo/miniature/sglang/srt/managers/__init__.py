"""The worker process that owns the models."""
