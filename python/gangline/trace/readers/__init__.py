"""One module per trace format; each offers `read(source, options) -> Raw`."""
