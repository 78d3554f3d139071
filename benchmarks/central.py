"""Play a workload with a plain centralized training loop on the samples of a round: the speed of a GPU without federation.

Batches have 640 samples. The images are stored with channels first or last, whichever is faster in a few steps before the
measurement.
"""

import time

import torch
from nets import build, compute
from protocol import arguments, serve
from torch import Tensor, nn

BATCH = 640
TRIED = 5
"""Steps that are tried with each layout, twice; the first time is not counted."""


def main() -> None:
    """Play rounds on request. The reported steps are those of the workload, because every sample is used equally often."""
    args, work = arguments()
    device = torch.device(args.device)
    rounded = compute(args.arithmetic, device)
    module = build(work.net).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=work.lr, momentum=work.momentum)
    features = torch.from_numpy(work.features).to(device)
    labels = torch.from_numpy(work.labels).to(device)
    mean, deviation = torch.from_numpy(work.mean).to(device), torch.from_numpy(work.deviation).to(device)
    loss_of = nn.CrossEntropyLoss()

    def step(index: Tensor, layout: torch.memory_format) -> None:
        optimizer.zero_grad()
        images = ((features[index].float() - mean) / deviation).contiguous(memory_format=layout)
        with rounded:
            loss = loss_of(module(images), labels[index])
        loss.backward()
        optimizer.step()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def prepare(layout: torch.memory_format) -> None:
        module.to(memory_format=layout)  # type: ignore[call-overload]  # torch's annotations lack it
        optimizer.state.clear()

    def tried(layout: torch.memory_format) -> float:
        prepare(layout)
        for _ in range(2):
            wait()
            begin = time.perf_counter()
            for some in torch.arange(TRIED * BATCH, device=device).split(BATCH):
                step(some, layout)
            wait()
        return time.perf_counter() - begin

    layouts = [torch.contiguous_format]
    if device.type == "cuda" and work.net != "mlp":
        layouts = sorted([torch.contiguous_format, torch.channels_last], key=tried)
        prepare(layouts[0])

    def play(round: int) -> int:
        rows = torch.cat([torch.from_numpy(work.clients[client]) for client in work.cohorts[round]]).to(device)
        for _ in range(work.epochs):
            for index in rows[torch.randperm(len(rows), device=device)].split(BATCH):
                step(index, layouts[0])
        wait()
        return work.steps(round)

    serve(play, torch.cuda.max_memory_allocated, torch=torch.__version__, device=str(device), layout=str(layouts[0]))


if __name__ == "__main__":
    main()
