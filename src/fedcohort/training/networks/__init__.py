"""What a network is like for local training: random layers, mixed samples, buffers, memory layout, entries of its models."""
