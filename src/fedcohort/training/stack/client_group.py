"""The clients of one stack during their training."""

from collections.abc import Sequence

from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors, Update
from fedcohort.training.client_hooks import corrected, differentiated, finished
from fedcohort.training.client_memories import Trained
from fedcohort.training.client_report import NO_STEP
from fedcohort.training.optimizers import Optimizer, build_optimizer, laid_out
from fedcohort.training.stack.batch_plan import Plan
from fedcohort.training.stack.fused_steps import FusedSteps, fused_steps
from fedcohort.training.stack.linear_chain_descent import Models
from fedcohort.training.stack.received_model import ReceivedModel
from fedcohort.training.stack.small_models import SmallModels
from fedcohort.training.stack.stack_problem import StackProblem
from fedcohort.training.stack.stack_setup import StackSetup
from fedcohort.training.stack.stacked_tensors import Memory, clip, cut, of_client
from fedcohort.training.stack.step_totals import Tally

__all__ = ["Group"]

Results = list[Trained]
"""Updates and new memories."""


class Group:
    """Trains the clients of one stack. Clients that have done their steps leave it at the end of the client axis.

    No part of a group refers back to the group, so that the memory of a group that failed is free at once, not only when the garbage
    collector runs.

    Args:
        setup: the stack's setup.
        model: the received model.
        t: round, from 1.
        plans: the clients' plans, most steps first.
        received: what the algorithm broadcast beside the model.
        memory: the clients' memories, [g, …].
    """

    def __init__(
        self,
        setup: StackSetup,
        model: ModelState,
        t: int,
        plans: Sequence[Plan],
        received: Memory,
        memory: dict[str, Tensors],
    ) -> None:
        self.setup, self.model, self.plans = setup, model, plans
        self.tally = Tally(setup, plans)
        self.fused: FusedSteps | None = fused_steps(setup, model, t, plans, self.tally)
        self.optimizer: Optimizer | None = None
        trained = setup.network.parameters if self.fused is None else self.fused.trained
        parameters = setup.buffers.like({name: model[name] for name in trained}, len(plans))
        if self.fused is not None:
            self.fused.begin(parameters)
        else:
            for name, value in parameters.items():
                value.copy_(model[name])
            self.optimizer = build_optimizer(setup.training, list(parameters.values()))
            self.optimizer.param_groups[0]["lr"] = setup.training.lr_at(t)
        self.models: Models | SmallModels | None = SmallModels.of(model, parameters)
        if self.fused is not None and self.fused.models is not None:
            self.models = self.fused.models
        self.received = ReceivedModel(setup, model, plans)
        self.problem = StackProblem(
            setup,
            model,
            t,
            plans,
            parameters=parameters,
            received=received,
            memory=memory,
            received_model=self.received,
            forwards=self.tally.forwards,
        )

    def train(self) -> Results:
        """All steps of all clients; results in the order of the plans."""
        results: Results = []
        for step in range(self.plans[0].steps + 1):
            active = sum(plan.steps > step for plan in self.plans)
            if not active and self.models is not None:
                self.models.settle()
            if active < self.problem.active:
                results = self._leave(active, step) + results
            if active:
                self._step(step)
        return results

    def _step(self, step: int) -> None:
        """One step of every client that has steps left."""
        if self.fused is not None:
            losses, right = self.fused.step(step, self.problem.active, self.received, self.tally)
        else:
            losses, right = self._step_by_gradients(step)
        self.problem.steps += 1
        self.tally.add(step, losses, right)

    def _step_by_gradients(self, step: int) -> tuple[Tensor, Tensor]:
        """Gradients, the algorithm's correction, and the optimizer's step."""
        problem, setup, optimizer = self.problem, self.setup, self.optimizer
        assert optimizer is not None
        problem.begin([plan.rows[step] for plan in problem.plans])
        losses, right = differentiated(setup.algorithm, problem)
        gradients = problem.gradients
        if setup.training.clip_norm:
            clip(gradients, setup.training.clip_norm)
        if setup.algorithm.corrects:
            corrected(setup.algorithm, problem, gradients)
        for name, p in problem.parameters.items():  # without a gradient, a parameter stays as it is, and is not decayed
            p.grad = laid_out(gradients[name], p) if name in gradients else None
        optimizer.step()
        return losses, right

    def _leave(self, active: int, step: int) -> Results:
        """Results of the clients from ``active`` on, which have done their ``step`` steps; the others stay."""
        clients = slice(active, self.problem.active)
        leaving = self.problem.part(clients)
        updates = [self._update(leaving, active, i) for i in range(leaving.active)]
        if not step:
            for update in updates:
                update.failure = NO_STEP
            self._narrow(active)
            return [(update, {}) for update in updates]
        extra, memory = finished(self.setup.algorithm, leaving)
        for i, (update, report) in enumerate(zip(updates, self.tally.reports(clients), strict=True)):
            update.report = report
            update.passes = float(self.tally.forwards[active + i]) / update.num_samples
            update.extra = of_client(extra, i)
        self._narrow(active)
        return [(update, of_client(memory, i)) for i, update in enumerate(updates)]

    def _update(self, leaving: StackProblem, first: int, i: int) -> Update:
        """The update of client ``i`` of those that leave, the first of which is client ``first`` of the group; without a report."""
        plan = leaving.plans[i]
        if self.models is not None:
            return Update.among(self.models, first + i, plan.client, plan.size, plan.steps)
        own = {name: value[i].detach() for name, value in leaving.parameters.items()}
        state = {name: own[name] if name in own else value.clone() for name, value in self.model.items()}
        return Update(plan.client, plan.size, plan.steps, state)

    def _narrow(self, active: int) -> None:
        """Keep only the first ``active`` clients, and the optimizer's state of them."""
        before = list(self.problem.parameters.values())
        self.problem = self.problem.part(slice(0, active))
        if self.optimizer is None:
            return
        now = list(self.problem.parameters.values())
        self.optimizer.param_groups[0]["params"] = now
        for old, new in zip(before, now, strict=True):
            state = self.optimizer.state.pop(old, {})
            self.optimizer.state[new] = {key: cut(value, slice(0, active), len(old)) for key, value in state.items()}
