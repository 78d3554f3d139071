"""Local training of many clients at once: parameters stacked along a client axis, batched matrix products, no autograd.

For chains of linear layers and ReLU (softmax regression, perceptrons) the backward pass is two products per layer, and a plain
gradient step can be fused into the product that forms the gradient: ``W.baddbmm_(Xᵀ, δ, alpha=−lr)`` never writes the gradient
out. Clients are ordered by their number of steps, so that those that are done leave the end of the stack; only a client's last
short batch is padded.

The arithmetic is that of :class:`fedcohort.training.local.Trainer` in another order: results agree to rounding, batches and steps
exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.base import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.local import Training
from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.federation.federation import Federation
from fedcohort.streams import rng
from fedcohort.training.local import DTYPES

__all__ = ["Stack", "cannot_stack"]


@dataclass(frozen=True)
class _Linear:
    weight: str
    bias: str | None
    relu: bool


def _chain(module: nn.Module) -> list[_Linear] | None:
    """The layers, if the module is Flatten, then linear layers with ReLU between them; None otherwise."""
    if not isinstance(module, nn.Sequential) or list(module.buffers()):
        return None
    layers: list[_Linear] = []
    for name, part in module.named_children():
        if isinstance(part, nn.Flatten) and not layers and part.start_dim == 1 and part.end_dim == -1:
            continue
        if isinstance(part, nn.Linear) and all(p.requires_grad for p in part.parameters()):
            layers.append(_Linear(f"{name}.weight", f"{name}.bias" if part.bias is not None else None, relu=False))
        elif isinstance(part, nn.ReLU) and layers and not layers[-1].relu:
            layers[-1] = _Linear(layers[-1].weight, layers[-1].bias, relu=True)
        else:
            return None
    return layers if layers and not layers[-1].relu else None


def cannot_stack(module: nn.Module, training: Training, algorithm: Algorithm) -> str | None:
    """Why this cannot be stacked, in words; None if it can."""
    if _chain(module) is None:
        return "the model is not a chain of linear layers and ReLU"
    if not algorithm.stacks or type(algorithm).backward is not Algorithm.backward or algorithm.corrects:
        return f"{type(algorithm).__name__} changes gradients one client at a time"
    if type(algorithm).finish is not Algorithm.finish:
        return f"{type(algorithm).__name__} looks at each client's own training"
    if not isinstance(training.build_loss(), CrossEntropy):
        return "the loss is not the cross-entropy"
    if training.optimizer != "sgd" or training.nesterov or training.weight_decay or training.clip_norm:
        return "the optimiser is not SGD with or without momentum"
    return None


class Stack:
    """Trains groups of clients of a federation, for what :func:`cannot_stack` allows.

    Args:
        federation: whose data.
        module: the model; only its shape matters.
        training: settings, as the algorithm wants them.
        seed: of the experiment.
    """

    def __init__(self, federation: Federation, module: nn.Module, training: Training, seed: int) -> None:
        layers = _chain(module)
        assert layers is not None
        self.layers = layers
        self.federation = federation
        self.training = training
        self.seed = seed
        self.dtype = DTYPES[training.precision]

    def train(
        self, model: ModelState, t: int, clients: Sequence[int], epochs: Sequence[int] | None = None
    ) -> list[Update]:
        """Train ``clients`` together in round ``t`` from ``model``; updates in the order given."""
        settings = self.training
        sizes = np.array([int(self.federation.num_samples[client]) for client in clients])
        passes = np.array(epochs if epochs is not None else [settings.epochs] * len(clients))
        batch = settings.batch_size or int(sizes.max())
        per_pass = -(-sizes // batch)
        steps = per_pass * passes
        order = np.argsort(-steps, kind="stable")
        batches = [_batches(self.seed, t, clients[i], sizes[i], passes[i], batch) for i in order]
        group = _Group(self, model, [clients[i] for i in order], sizes[order], per_pass[order], steps[order])
        for step in range(int(steps.max())):
            group.step(step, [rows[step] for rows in batches[: group.active(step)]], settings.lr_at(t))
        updates = group.updates(passes[order], settings.epochs)
        back = np.argsort(order, kind="stable")
        return [updates[i] for i in back]


class _Group:
    """The clients of one stack during their training, most steps first."""

    def __init__(
        self, stack: Stack, model: ModelState, clients: list[int], sizes: Any, per_pass: Any, steps: Any
    ) -> None:
        g = len(clients)
        self.stack, self.clients, self.sizes, self.steps = stack, clients, sizes, steps
        device = stack.federation.train.labels.device
        self.weights = [_stacked(model[layer.weight].T, g) for layer in stack.layers]
        self.biases = [_stacked(model[layer.bias][None], g) if layer.bias else None for layer in stack.layers]
        momentum = stack.training.momentum > 0
        self.speeds = [torch.zeros_like(w) for w in self.weights] if momentum else None
        self.bias_speeds = [None if b is None else torch.zeros_like(b) for b in self.biases] if momentum else None
        self.per_pass = torch.from_numpy(per_pass).to(device)
        self.last_pass = torch.from_numpy(steps - per_pass).to(device)
        self.loss = torch.zeros(g, dtype=torch.float64, device=device)
        self.squares = torch.zeros(g, dtype=torch.float64, device=device)
        self.right = torch.zeros(g, dtype=torch.float64, device=device)
        self.starts = stack.federation.offsets

    def active(self, step: int) -> int:
        """How many clients still train: a prefix."""
        return int(np.searchsorted(-self.steps, -step, side="left"))

    def step(self, step: int, rows: list[np.ndarray], lr: float) -> None:
        """One optimiser step of the first ``len(rows)`` clients; ``rows`` are positions in each client's samples."""
        a = len(rows)
        inputs, labels, mask, counts = self._load(rows)
        hidden = [inputs]
        for i, layer in enumerate(self.stack.layers):
            bias = self.biases[i]
            out = (
                torch.bmm(hidden[-1], self.weights[i][:a])
                if bias is None
                else torch.baddbmm(bias[:a], hidden[-1], self.weights[i][:a])
            )
            hidden.append(out.relu_() if layer.relu else out)
        log_p = functional.log_softmax(hidden[-1], dim=2)
        self._report(step, log_p, labels, mask, counts)
        delta = log_p.exp_()
        delta.scatter_add_(2, labels[..., None], torch.full_like(labels[..., None], -1, dtype=delta.dtype))
        delta /= counts[:, None, None]
        if mask is not None:
            delta *= mask[..., None]
        for i in range(len(self.weights) - 1, -1, -1):
            before = torch.bmm(delta, self.weights[i][:a].transpose(1, 2)) if i else None
            self._descend(i, a, hidden[i], delta, lr)
            if before is not None:
                delta = before.mul_(hidden[i] > 0) if self.stack.layers[i - 1].relu else before

    def _descend(self, i: int, a: int, inputs: Tensor, delta: Tensor, lr: float) -> None:
        momentum = self.stack.training.momentum
        bias = self.biases[i]
        slope = None if bias is None else delta.sum(dim=1, keepdim=True)
        if self.speeds is None or self.bias_speeds is None:
            self.weights[i][:a].baddbmm_(inputs.transpose(1, 2), delta, alpha=-lr)
            if bias is not None and slope is not None:
                bias[:a].add_(slope, alpha=-lr)
            return
        speed, bias_speed = self.speeds[i][:a], self.bias_speeds[i]
        speed.baddbmm_(inputs.transpose(1, 2), delta, beta=momentum)
        self.weights[i][:a].add_(speed, alpha=-lr)
        if bias is not None and slope is not None and bias_speed is not None:
            bias_speed[:a].mul_(momentum).add_(slope)
            bias[:a].add_(bias_speed[:a], alpha=-lr)

    def _load(self, rows: list[np.ndarray]) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Inputs [a, B, d], labels [a, B], a mask where short batches were padded, and the true batch sizes [a]."""
        federation, dtype = self.stack.federation, self.stack.dtype
        counts = np.array([len(row) for row in rows])
        width = int(counts.max())
        index = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            index[i, : len(row)] = row
        index += self.starts[np.array(self.clients[: len(rows)])][:, None]
        flat = torch.from_numpy(index.reshape(-1)).to(federation.train.labels.device)
        features = federation.prepare(federation.train.features[flat], dtype)
        inputs = features.reshape(len(rows), width, -1)
        labels = federation.train.labels[flat].reshape(len(rows), width)
        mask = None
        if counts.min() < width:
            mask = torch.from_numpy(np.arange(width)[None] < counts[:, None]).to(labels.device, dtype)
        return inputs, labels, mask, torch.from_numpy(counts).to(labels.device, dtype)

    def _report(self, step: int, log_p: Tensor, labels: Tensor, mask: Tensor | None, counts: Tensor) -> None:
        a = len(labels)
        losses = -log_p.gather(2, labels[..., None]).squeeze(2)
        hits = (log_p.argmax(2) == labels).to(losses.dtype)
        if mask is not None:
            losses, hits = losses * mask, hits * mask
        self.loss[:a] += losses.sum(1) / counts
        self.squares[:a] += (losses.double().square().sum(1)) * (step < self.per_pass[:a])
        self.right[:a] += hits.sum(1) * (step >= self.last_pass[:a])

    def updates(self, epochs: np.ndarray, nominal: int) -> list[Update]:
        """What the clients send, in stack order."""
        state: Tensors = {}
        for i, layer in enumerate(self.stack.layers):
            state[layer.weight] = self.weights[i].transpose(1, 2).contiguous()
            bias = self.biases[i]
            if layer.bias and bias is not None:
                state[layer.bias] = bias.squeeze(1)
        loss, squares, right = (values.cpu().numpy() for values in (self.loss, self.squares, self.right))
        updates = []
        for i, client in enumerate(self.clients):
            report = {
                "loss": float(loss[i] / max(self.steps[i], 1)),
                "square_loss": float(squares[i] / self.sizes[i]),
                "samples": float(self.sizes[i]),
                "steps": float(self.steps[i]),
                "accuracy": float(right[i] / self.sizes[i]),
            }
            updates.append(
                Update(
                    client=client,
                    num_samples=int(self.sizes[i]),
                    steps=int(self.steps[i]),
                    state={name: values[i] for name, values in state.items()},
                    report={name: value for name, value in report.items() if math.isfinite(value)},
                    passes=3.0 * float(epochs[i]),
                    work=float(epochs[i]) / nominal,
                )
            )
        return updates


def _stacked(value: Tensor, clients: int) -> Tensor:
    return value[None].expand(clients, *value.shape).clone(memory_format=torch.contiguous_format)


def _batches(seed: int, t: int, client: int, size: int, epochs: int, batch: int) -> list[np.ndarray]:
    """The client's batches in order, as in :meth:`fedcohort.training.local.Trainer.train`."""
    order = rng(seed, "batches", t, client)
    rows: list[np.ndarray] = []
    for _ in range(epochs):
        shuffled = order.permutation(size)
        rows.extend(shuffled[start : start + batch] for start in range(0, size, batch))
    return rows
