"""Local training: the steps of one client, or of a stack of clients."""
