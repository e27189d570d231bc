"""What a session does to hosts, in order: look, change, and put back."""
