"""What sessions left on hosts, and how it is ended or kept from outside of a run."""
