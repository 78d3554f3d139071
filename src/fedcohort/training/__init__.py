"""Local training: the training of one client, of stacks of clients, stopping rules, and answers to questions about models."""
