"""What was seen, and what it says of the question."""
