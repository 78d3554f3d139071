"""Play a workload with Flower's simulation: Ray actors with one core each. The strategy waits for the benchmark before every round."""

import json
import os
import sys
import time
from typing import Any

import ray
import torch
import works
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, FitIns, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from nets import build
from protocol import arguments
from works import Work


def loaded(name: str, turns: int, quick: bool) -> Work:
    """The workload, loaded once in each process. It is kept on a module because this file is sent to the actors by value."""
    process: Any = works
    if not hasattr(process, "loaded"):
        torch.set_num_threads(1)
        process.loaded = works.work(name, turns, quick)
    found: Work = process.loaded
    return found


class Client(NumPyClient):
    """Trains the client that the server names."""

    def fit(self, parameters: Any, config: Any) -> Any:
        plan = loaded(config["work"], config["turns"], config["quick"])
        rows = plan.clients[config["client"]]
        features, labels = torch.from_numpy(plan.standardised(rows)), torch.from_numpy(plan.labels[rows])
        module = build(plan.net)
        module.load_state_dict(
            {name: torch.from_numpy(p) for name, p in zip(module.state_dict(), parameters, strict=True)}
        )
        optimizer, steps = torch.optim.SGD(module.parameters(), plan.lr, momentum=plan.momentum), 0
        for _ in range(plan.epochs):
            for index in torch.randperm(len(rows)).split(plan.batch):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(module(features[index]), labels[index]).backward()
                optimizer.step()
                steps += 1
        return [p.numpy() for p in module.state_dict().values()], len(rows), {"steps": steps}


class Waiting(FedAvg):
    """FedAvg with the cohorts of the workload."""

    def __init__(self, args: Any, plan: Work, out: Any) -> None:
        first = ndarrays_to_parameters([p.numpy() for p in build(plan.net).state_dict().values()])
        super().__init__(fraction_evaluate=0.0, initial_parameters=first, min_available_clients=len(plan.cohorts[0]))
        self.args, self.plan, self.out, self.ready, self.begin = args, plan, out, False, 0.0

    def say(self, **facts: Any) -> None:
        print(json.dumps(facts), file=self.out, flush=True)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        cohort = self.plan.cohorts[0]
        client_manager.wait_for(len(cohort))
        if not self.ready:
            self.ready = True
            self.say(ready=True, flwr="1.41.0", torch=torch.__version__)
        line = sys.stdin.readline()
        if not line:
            ray.shutdown()  # otherwise its agents would keep running for minutes
            os._exit(0)
        self.begin = time.perf_counter()
        common = {"work": self.args.work, "turns": self.args.turns, "quick": self.args.quick}
        proxies = client_manager.sample(len(cohort))
        return [
            (proxy, FitIns(parameters, {**common, "client": int(client)}))
            for proxy, client in zip(proxies, self.plan.cohorts[int(line)], strict=True)
        ]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        merged = super().aggregate_fit(server_round, results, failures)
        steps = sum(int(result.metrics["steps"]) for _, result in results)
        self.say(seconds=time.perf_counter() - self.begin, steps=steps)
        return merged


def main() -> None:
    """Play rounds on request."""
    args, plan = arguments()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    strategy = Waiting(args, plan, out)

    def server(_: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=len(plan.cohorts) + 1))

    run_simulation(
        ServerApp(server_fn=server),
        ClientApp(client_fn=lambda _: Client().to_client()),
        num_supernodes=len(plan.cohorts[0]),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
