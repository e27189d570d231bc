"""The main process: its workers, its HTTP server."""
