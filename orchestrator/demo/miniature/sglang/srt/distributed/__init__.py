"""How the workers of all hosts act as one."""
