"""Python code as structure: walking its statements and comparing them without their layout."""
