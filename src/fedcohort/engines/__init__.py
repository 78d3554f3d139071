"""Engines train the selected clients, ask clients questions, and evaluate models: in this process, or on a cluster."""
