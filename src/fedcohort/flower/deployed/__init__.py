"""The server's half of a deployment: the round loop in a Flower ServerApp, with clients that train at their sites."""
