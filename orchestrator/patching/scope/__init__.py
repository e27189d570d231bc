"""Which names a place sees, and what a capture may ask there."""
