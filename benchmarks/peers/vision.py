"""Makes torchvision importable with a PyTorch for which it was not built. Import this module first.

The torchvision of PyPI is built for PyTorch with CUDA. With a PyTorch without CUDA, its compiled operators do not load, and its
import fails where it describes two of them. Defining these two is enough: the simulators import torchvision, but nothing that is
measured uses it.
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
