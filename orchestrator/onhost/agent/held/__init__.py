"""What a session holds on this host: its journal, lease, locks, and the facts of them."""
