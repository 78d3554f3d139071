"""An engine on a Ray cluster: hosts train the clients, and the driver plays the rounds."""
