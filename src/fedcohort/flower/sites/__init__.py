"""The data owner's half of a deployment: a process that holds data and memories, and answers only what its owner allows."""
