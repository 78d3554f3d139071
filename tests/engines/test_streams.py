"""What a GPU's streams and recordings do without a GPU: nothing, and no error."""

import torch
from torch import nn

from fedcohort.engines import device
from fedcohort.engines.thread_numbers import LARGE, threads_for


def test_tensors_of_the_cpu_leave_a_stream_as_they_are() -> None:
    """Clients also send numbers that were computed on the CPU, as those of FedNova are."""
    steps = torch.tensor(3.0)
    state = {"sum": torch.ones(2), "more": [torch.ones(1), {"steps": steps}], "text": "a"}
    for kind in ("cuda", "cpu"):
        device.leave_stream(state, torch.device(kind))  # PyTorch refuses to note a stream for a tensor of the CPU
    assert float(steps) == 3


def test_a_device_without_streams_works_on_the_usual_one() -> None:
    assert device.new_stream(torch.device("cpu")) is None
    with device.on_stream(None):
        pass


def test_large_networks_get_more_threads_for_a_gpu() -> None:
    small, large = nn.Linear(10, 10), nn.Linear(LARGE, 1, device="meta")
    gpu = torch.device("cuda")
    assert threads_for(small, gpu) < threads_for(large, gpu)
    assert threads_for(small, torch.device("cpu")) == threads_for(large, torch.device("cpu"))
