"""From a place and an edit to new nodes, spliced into the file's own bytes, and out again."""
