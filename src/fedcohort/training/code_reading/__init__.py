"""What the Python code of networks and losses does: whether it only computes, and whether it still computes the same."""
