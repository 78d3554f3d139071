"""A plain centralised training loop on the samples of a round, in batches of 640: what a GPU does when nothing is federated."""

import torch
from nets import build
from protocol import arguments, serve
from torch import nn

BATCH = 640


def main() -> None:
    """Serve rounds; the steps reported are the work's, for its samples are gone through as often."""
    args, work = arguments()
    device = torch.device(args.device)
    module = build(work.net).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=work.lr, momentum=work.momentum)
    features = torch.from_numpy(work.features).to(device)
    labels = torch.from_numpy(work.labels).to(device)
    mean, deviation = torch.from_numpy(work.mean).to(device), torch.from_numpy(work.deviation).to(device)
    loss_of = nn.CrossEntropyLoss()

    def play(round: int) -> int:
        rows = torch.cat([torch.from_numpy(work.clients[client]) for client in work.cohorts[round]]).to(device)
        for _ in range(work.epochs):
            for index in rows[torch.randperm(len(rows), device=device)].split(BATCH):
                optimizer.zero_grad()
                loss_of(module((features[index].float() - mean) / deviation), labels[index]).backward()
                optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return work.steps(round)

    serve(play, torch=torch.__version__, device=str(device))


if __name__ == "__main__":
    main()
