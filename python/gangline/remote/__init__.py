"""Connects schedulers in other processes: by gangline's protocol over a socket, or Batsim's."""
