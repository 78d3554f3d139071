"""Properties of networks on which local training depends: random layers, mixed samples, buffers, memory layout, omitted entries."""
