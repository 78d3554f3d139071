"""Play a workload with FedJAX: its FedAvg and its default backend (jit)."""

from typing import Any

import jax

if not hasattr(jax, "tree_map"):  # FedJAX 0.0.17 was written for an older JAX
    jax.tree_map = jax.tree_util.tree_map

import fedjax
import haiku as hk
import numpy as np
from protocol import arguments, serve


def network(name: str) -> Any:
    """The layers of the workload's network; images have the shape [B, H, W, C]."""

    def forward(batch: Any) -> Any:
        x = batch["x"]
        if name == "mlp":
            return hk.Sequential([hk.Flatten(), hk.Linear(200), jax.nn.relu, hk.Linear(10)])(x)
        for width, pool in ((32, True), (64, True), (64, False)):
            x = jax.nn.relu(hk.Conv2D(width, 3)(x))
            if pool:
                x = hk.MaxPool(2, 2, "VALID")(x)
        return hk.Sequential([hk.Flatten(), hk.Linear(64), jax.nn.relu, hk.Linear(10)])(x)

    return hk.transform(forward)


class Counted(fedjax.ClientDataset):
    """Counts the batches that are used."""

    steps = 0

    def shuffle_repeat_batch(self, *args: Any, **values: Any) -> Any:
        for batch in super().shuffle_repeat_batch(*args, **values):
            Counted.steps += 1
            yield batch


def main() -> None:
    """Play rounds on request."""
    _, work = arguments()
    clients = [
        Counted({"x": np.moveaxis(work.standardised(rows), 1, -1), "y": work.labels[rows]}) for rows in work.clients
    ]
    sample = {"x": clients[0].all_examples()["x"][:1], "y": clients[0].all_examples()["y"][:1]}

    def loss(batch: Any, predictions: Any) -> Any:
        return -jax.numpy.take_along_axis(jax.nn.log_softmax(predictions), batch["y"][:, None], axis=1)[:, 0]

    model = fedjax.create_model_from_haiku(network(work.net), sample, loss)
    hparams = fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs)
    momentum = work.momentum or None
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model), fedjax.optimizers.sgd(work.lr, momentum), fedjax.optimizers.sgd(1.0), hparams
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))

    def play(round: int) -> int:
        nonlocal state
        Counted.steps = 0
        keys = jax.random.split(jax.random.PRNGKey(round), len(work.cohorts[round]))
        cohort = [(str(c), clients[c], key) for c, key in zip(work.cohorts[round], keys, strict=True)]
        state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)
        return Counted.steps

    serve(play, fedjax="0.0.17", jax=jax.__version__)


if __name__ == "__main__":
    main()
