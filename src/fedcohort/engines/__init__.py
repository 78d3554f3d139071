"""Engines: where clients train, answer questions and are evaluated; the local engine uses the threads of this process or a GPU."""
