"""Scripts (TorchScript) of all other networks: their calls are recorded once, and then made without Python and autograd."""
