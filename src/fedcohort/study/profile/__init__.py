"""The batch sizes of a device: time and memory measured on this machine, and the size to use."""
