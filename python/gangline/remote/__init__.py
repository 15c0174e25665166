"""Connects schedulers in other processes, through gangline's protocol over a socket or Batsim's."""
