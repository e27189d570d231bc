"""What a run leaves behind: its directory, its time line, how it ended."""
