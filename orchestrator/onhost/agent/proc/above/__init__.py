"""Who stands above a server: supervisors, wrappers, and people's sessions."""
