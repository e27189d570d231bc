"""What is looked at without changing anything."""
