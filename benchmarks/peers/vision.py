"""Makes torchvision importable beside a PyTorch that it was not built for; import this first.

PyPI's torchvision belongs to a PyTorch with CUDA. Beside one without, its compiled operators do not load, and its import stops where
it describes two of them. Naming these is enough: the libraries here import torchvision, and nothing that is measured uses it.
"""

import torch

try:
    import torchvision
except RuntimeError:
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

__all__ = ["torchvision"]
