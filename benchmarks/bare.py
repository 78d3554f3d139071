"""Play a workload with a hand-written loop, the baseline: one model, float batches prepared in advance, SGD, a running sum.

python benchmarks/bare.py --work W2 --threads 1
"""

import argparse

import torch
from nets import build, compute
from protocol import arguments, serve
from torch import nn


def main() -> None:
    """Play rounds on request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads")
    args, work = arguments(parser)
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    rounded = compute(args.arithmetic, device)
    torch.manual_seed(0)
    module = build(work.net).to(device)
    data = [
        (torch.from_numpy(work.standardised(rows)).to(device), torch.from_numpy(work.labels[rows]).to(device))
        for rows in work.clients
    ]
    loss_of = nn.CrossEntropyLoss()
    model = {name: value.clone() for name, value in module.state_dict().items()}

    def play(round: int) -> int:
        nonlocal model
        steps, seen, total = 0, 0, {name: torch.zeros_like(value) for name, value in model.items()}
        for client in work.cohorts[round]:
            module.load_state_dict(model)
            optimizer = torch.optim.SGD(module.parameters(), lr=work.lr, momentum=work.momentum)
            features, labels = data[client]
            for _ in range(work.epochs):
                for index in torch.randperm(len(labels), device=device).split(work.batch):
                    optimizer.zero_grad()
                    with rounded:
                        loss = loss_of(module(features[index]), labels[index])
                    loss.backward()
                    optimizer.step()
                    steps += 1
            for name, value in module.state_dict().items():
                total[name] += value * len(labels)
            seen += len(labels)
        model = {name: value / seen for name, value in total.items()}
        if device.type == "cuda":
            torch.cuda.synchronize()
        return steps

    serve(play, torch.cuda.max_memory_allocated, torch=torch.__version__, device=str(device))


if __name__ == "__main__":
    main()
