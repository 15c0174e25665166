"""Connects schedulers in other processes, through gangline's protocol or Batsim's."""
