"""Play runs: objects from Python, preparation, finding and playing run directories, parallel runs, and trackers."""
