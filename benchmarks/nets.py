"""The networks of the workloads in plain PyTorch, and the arithmetic of plain loops on a GPU."""

import torch
from torch import Tensor, nn


def build(name: str) -> nn.Module:
    """The network of this name, for the images of the workload that uses it."""
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    if name == "cnn_a":
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
    layers = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.GroupNorm(32, 64), nn.ReLU()]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Block(before, width, stride), _Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def compute(kind: str, device: torch.device) -> torch.autocast:
    """Set torch's switches as FedCohort does for this arithmetic; run forward passes within the returned context.

    torch's default is none of the three: it uses TF32 in convolutions, but not in matrix products.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = kind == "exact", kind != "exact"
    return torch.autocast(device.type, torch.bfloat16, enabled=kind == "bf16")


class _Block(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, padding=1, bias=False), nn.GroupNorm(32, width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.GroupNorm(32, width),
        )  # fmt: skip
        same = stride == 1 and before == width
        shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.GroupNorm(32, width))
        self.shortcut = nn.Identity() if same else shortcut

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.body(x) + self.shortcut(x))
