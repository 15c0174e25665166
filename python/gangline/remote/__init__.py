"""Schedulers in other processes: our own protocol over a socket, and that of Batsim."""
