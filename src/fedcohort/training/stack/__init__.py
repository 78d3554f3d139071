"""Local training of stacks of clients: every parameter has a leading client axis, and one call advances all clients by a step.

The algorithm's hooks, clipping and the optimizer's step, which the loop applies to one client, are applied to all clients of a stack
at once. Except for clipping, which has its own code for stacks, these operations are elementwise. How gradients are computed is the
subject of :mod:`fedcohort.training.stack.stacked_networks`. If nothing else reads them and the optimizer is plain or momentum SGD, a
chain of linear layers takes its steps without computing them separately (:mod:`fedcohort.training.stack.linear_chain_descent`).

The arithmetic is that of :class:`fedcohort.training.trainer.Trainer` in another order: results agree to rounding, and batches and
numbers of steps agree exactly. The last bits of a client's result may depend on the other clients of its stack. Stacks are therefore
cut in the same way whatever the number of threads.
"""

from fedcohort.training.stack.stack_setup import cannot_stack
from fedcohort.training.stack.train_stack import Stack

__all__ = ["Stack", "cannot_stack"]
