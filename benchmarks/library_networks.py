"""Which networks of torchvision, timm, transformers and einops have scripts with the bits of autograd, and what a pass takes.

    python -m benchmarks.library_networks [NAME …]

Needs these packages; what is not installed is left out. A pass is the gradient of a batch of four samples, on one core; its time is
the shortest of several, scripts and autograd in turns. In runs, passes of more than 0.1 s get no script. NAME is the beginning of
names, such as ``timm.vit``.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.core.threads import one_thread
from fedcohort.training.networks.random_layers import draws_at_random
from fedcohort.training.scripts import network_scripts
from fedcohort.training.scripts.network_scripts import Scripts
from fedcohort.training.scripts.scripted_passes import Network

BATCH, CLASSES, TOKENS, LENGTH = 4, 10, 100, 20
TURNS = 8
Build = Callable[[], nn.Module]

TORCHVISION = (
    "resnet18", "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x0_5", "mnasnet0_5", "squeezenet1_1", "regnet_y_400mf",
    "densenet121", "convnext_tiny",
)  # fmt: skip
TIMM: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "mobilenetv3_small_050": {},
    "efficientnet_lite0": {},
    "convnext_atto": {"drop_path_rate": 0.2},
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 4, "depth": 2, "drop_rate": 0.1},
    "swin_tiny_patch4_window7_224": {"img_size": 32, "window_size": 2, "patch_size": 2, "depths": (1, 1), "num_heads": (3, 6)},
    "ghostnet_100": {},
    "poolformer_s12": {},
    "edgenext_xx_small": {},
    "mobilevit_xxs": {},
}  # fmt: skip


class Logits(nn.Module):
    """A network of ``transformers`` that returns logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=x).logits
        return logits


def networks() -> Iterator[tuple[str, Build, bool]]:
    """Name, network, and whether it takes tokens, of the packages that are installed."""
    with suppress(ImportError):
        import_module("benchmarks.peers.vision")  # with a PyTorch without CUDA, too
        models: Any = import_module("torchvision.models")
        for name in TORCHVISION:
            yield f"torchvision.{name}", partial(getattr(models, name), num_classes=CLASSES), False
        yield "torchvision.vit", partial(models.VisionTransformer, 32, 4, 2, 2, 64, 128, num_classes=CLASSES), False
    with suppress(ImportError):
        timm: Any = import_module("timm")
        for name, settings in TIMM.items():
            yield f"timm.{name}", partial(timm.create_model, name, num_classes=CLASSES, **settings), False
    with suppress(ImportError):
        hub: Any = import_module("transformers")
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        bert = hub.BertConfig(vocab_size=TOKENS, num_labels=CLASSES, **sizes)
        yield "transformers.bert", lambda: Logits(hub.BertForSequenceClassification(bert)), True
        distil = hub.DistilBertConfig(
            vocab_size=TOKENS, num_labels=CLASSES, dim=32, n_layers=2, n_heads=2, hidden_dim=64
        )
        yield "transformers.distilbert", lambda: Logits(hub.DistilBertForSequenceClassification(distil)), True
        gpt2 = hub.GPT2Config(vocab_size=TOKENS, n_embd=32, n_layer=2, n_head=2, n_positions=LENGTH)
        yield "transformers.gpt2", lambda: Logits(hub.GPT2LMHeadModel(gpt2)), True
    with suppress(ImportError):
        einops: Any = import_module("einops.layers.torch")
        patches = einops.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
        layers = (patches, nn.Linear(48, 64), nn.GELU(), einops.Reduce("b n c -> b c", "mean"), nn.Linear(64, CLASSES))
        yield "einops.layers", lambda: nn.Sequential(*layers), False


def batch_for(module: nn.Module, tokens: bool) -> tuple[Tensor, Tensor]:
    """A batch, with a label for each sample, or for each position if the network has an output for each."""
    features = torch.randint(TOKENS, (BATCH, LENGTH)) if tokens else torch.randn(BATCH, 3, 32, 32)
    with torch.no_grad():
        outputs = module(features)
    return features, torch.randint(outputs.shape[-1], outputs.shape[:-1])


def line_for(name: str, build: Build, tokens: bool) -> str:
    """A line of the table."""
    torch.manual_seed(0)
    module = build().train()
    features, labels = batch_for(module, tokens)
    draws = draws_at_random(module, features)
    parameters: dict[str, Tensor] = dict(module.named_parameters())
    loss = CrossEntropy()
    scripts = Scripts(module, parameters, loss, draws)
    network = Network(module, list(parameters.values()), loss, draws, [])
    script = None
    for _ in range(network_scripts.USES + 1):
        script = script or scripts.of(features, labels)
    if script is None:
        return f"| {name} | no script | | |"
    ways = (
        lambda: network.play((features, labels)),
        lambda: script.play(features, labels, [torch.Generator().manual_seed(1)] if draws else []),
    )
    seconds = [[_seconds(module, way) for way in ways] for _ in range(TURNS)]
    autograd, scripted = (min(times) * 1000 for times in zip(*seconds, strict=True))
    return f"| {name} | {autograd:.1f} | {scripted:.1f} | {autograd / scripted:.2f} × |"


def _seconds(module: nn.Module, way: Callable[[], object]) -> float:
    module.zero_grad()
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names; all networks if none is given")
    chosen = tuple(parser.parse_args().names)
    warnings.simplefilter("ignore")
    network_scripts.LONGEST = 60.0
    print("| network | pass by autograd, ms | by a script, ms | faster |\n| --- | --- | --- | --- |")
    for name, build, tokens in networks():
        if name.startswith(chosen or ("",)):
            with one_thread():
                print(line_for(name, build, tokens), flush=True)


if __name__ == "__main__":
    main()
