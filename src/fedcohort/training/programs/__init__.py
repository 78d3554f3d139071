"""Programs (TorchScript) of networks that are rows of known layers, and the functions that programs and scripts are made of."""
