"""What one pass through a model is told besides its tokens."""
