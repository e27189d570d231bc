"""What runs on a host: shipped there, standard library only, Python 3.8 and newer."""
