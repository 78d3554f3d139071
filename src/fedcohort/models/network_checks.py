"""Check a user's own network before the first round: what it takes, what it returns, and whether it can be trained."""

import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import torch_seeded
from fedcohort.core.token_shape import TokenShape
from fedcohort.core.user_code.own_code import place_of
from fedcohort.core.user_code.unseeded_draws import drawn_since, unseeded_states
from fedcohort.core.words.formatted_values import counted, in_words

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["check_network", "refuse_complex", "refuse_lazy"]

ONE_TO = 1e-3
"""Largest distance from 1 of the sum of probabilities; half precision is exact to about 5e-4."""

LARGE = 100.0
"""Factor on parameters with which an evaluation shows whether it limits them."""

_PLAIN = (bool, int, float, str, type(None))


def check_network(
    module: "nn.Module",
    samples: "Tensor",
    num_classes: int,
    name: str,
    tokens: tuple[int, ...] = (),
    *,
    numbers: bool = False,
    logits: bool = True,
    kept: Collection[str] = (),
) -> list[str]:
    """Check that a network can be trained on ``samples``, as a client would show them, and gives one logit for each class.

    A copy, if it can be copied, processes them in evaluation mode, all and one alone, and in training mode. If it changes plain
    attributes, such as a counter, returns probabilities in place of logits, or draws from generators without a seed, there is a
    warning. The names of these generators are returned.

    Args:
        module: the network.
        samples: some inputs.
        num_classes: number of classes K, or of outputs for numeric labels.
        name: name of the model, for messages.
        tokens: the shape of a sample; a :class:`TokenShape` may ask for logits for each position.
        numbers: whether the labels are numbers.
        logits: whether the loss takes logits, so that probabilities are a mistake.
        kept: names of attributes that no forward pass reads, so that nothing depends on them.

    Raises:
        UsageError: it cannot; the message names the shapes. An error of the network is the cause. Or it has nothing to train, has
            parameters that do not exist before the first forward pass, complex entries, sparse gradients, or entries that are not
            finite, or changes its buffers in evaluation mode, or replaces parameters in training.
    """
    return _Check(module, samples, num_classes, name, tokens, numbers, logits, kept).all()


def refuse_complex(module: "nn.Module", name: str) -> None:
    """Refuse a network with complex parameters or buffers, for which ``name`` stands in the message.

    It must not have been converted to a type of real numbers before, which would drop the imaginary parts.
    """
    entries = [*module.named_parameters(), *module.named_buffers()]
    complex_ones = [entry for entry, value in entries if value.is_complex()]
    if complex_ones:
        raise UsageError(
            f"model = {name}: {complex_ones[0]} is complex; models have real entries: keep torch.view_as_real(...) of it, "
            "and use torch.view_as_complex in the forward pass"
        )


def refuse_lazy(module: "nn.Module", name: str) -> None:
    """Refuse a network with parameters that have no shape yet, for which ``name`` stands in the message."""
    from torch.nn.parameter import is_lazy

    if any(map(is_lazy, [*module.parameters(), *module.buffers()])):
        raise UsageError(
            f"model = {name}: has lazy layers, which get their sizes in a first forward pass; use layers with sizes, such as "
            "nn.Linear for nn.LazyLinear"
        )


class _Check:
    """The check of one network; for the arguments see :func:`check_network`."""

    def __init__(
        self,
        module: "nn.Module",
        samples: "Tensor",
        num_classes: int,
        name: str,
        tokens: tuple[int, ...],
        numbers: bool,
        logits: bool,
        kept: Collection[str],
    ) -> None:
        self.logits = logits and not numbers
        self.module, self.samples, self.name, self.kept = module, samples, name, kept
        self.shape, self.tokens = list(samples.shape[1:]), isinstance(tokens, TokenShape)
        positions = self.shape if isinstance(tokens, TokenShape) and tokens.each_position else []
        self.outputs = [*positions, num_classes]
        self.kind, self.returned = (
            ("numbers", "numbers") if numbers else (counted(num_classes, "class", "classes"), "logits")
        )

    def all(self) -> list[str]:
        """All checks; returns the names of generators without a seed from which the network draws."""
        refuse_lazy(self.module, self.name)
        attributes, before = _plain_attributes(self.module), unseeded_states()
        from fedcohort.core.network_copies import copy_of

        twin = self.module
        with suppress(Exception):  # some modules cannot be copied
            twin = copy_of(self.module)
        self._evaluation(twin)
        self._parameters()
        self._training(twin, attributes)
        if drawn := drawn_since(before, unseeded_states()):
            warnings.warn(
                f"model = {self.name}: draws from {in_words(drawn)}, which FedCohort does not seed, so that a run cannot be repeated; "
                "draw by functions of PyTorch, such as torch.rand",
                stacklevel=4,
            )
        return drawn

    def _parameters(self) -> None:
        """There is something to train, and clients can train and send all of it."""
        from torch import nn

        if not any(parameter.requires_grad for parameter in self.module.parameters()):
            raise UsageError(
                f"model = {self.name}: has no parameter to train; one of them must have requires_grad = True"
            )
        others = self.module.state_dict().keys() - _entries(self.module).keys()
        if others:
            raise UsageError(
                f"model = {self.name}: {min(others)} of its state_dict() is no tensor, and only tensors are sent; register a buffer "
                "in place of get_extra_state"
            )
        refuse_complex(self.module, self.name)
        embeddings = nn.Embedding, nn.EmbeddingBag
        sparse = [name for name, part in self.module.named_modules() if isinstance(part, embeddings) and part.sparse]
        if sparse:
            raise UsageError(
                f"model = {self.name}: {sparse[0]} has sparse gradients, which clients cannot send; use sparse=False"
            )
        wrong = [name for name, value in self.module.named_parameters() if not bool(value.isfinite().all())]
        if wrong:
            raise UsageError(f"model = {self.name}: {wrong[0]} has NaN or infinite entries before the training")

    def _evaluation(self, twin: "nn.Module") -> None:
        """Outputs in evaluation mode have the right shape, for one sample as well, and nothing is changed by them."""
        import torch

        before = {name: value.clone() for name, value in _entries(twin).items()}
        first = {
            name: parameter.data for name, parameter in twin.named_parameters()
        }  # kept, so that their memory is not used again
        outputs: object = None
        with torch.no_grad():
            of_all = self._called(twin.eval(), self.samples, "")
            self._expect(of_all, len(self.samples), "")
            self._no_probabilities(of_all)
            with suppress(UsageError):  # batch statistics of one sample, which few federations evaluate alone
                outputs = self._called(twin, self.samples[:1], "")
        if outputs is not None:
            self._expect(outputs, 1, "")
        after = _entries(twin)
        if after.keys() != before.keys():
            new = ", ".join(sorted(after.keys() - before.keys()))
            raise UsageError(
                f"model = {self.name}: makes {new} in its first forward pass, too late to be sent to clients; make it in __init__"
            )
        changed = [
            name for name, value in before.items() if not torch.equal(_comparable(after[name]), _comparable(value))
        ]
        # such as self.weight.data = ..., which changes values only after some training
        changed += [
            name for name, parameter in twin.named_parameters() if parameter.data_ptr() != first[name].data_ptr()
        ]
        changed += self._limited()
        if changed:
            limited = any(getattr(part, "max_norm", None) for part in twin.modules())
            advice = (
                "leave out max_norm of embeddings" if limited else "change it in training only (if self.training: ...)"
            )
            raise UsageError(
                f"model = {self.name}: changes {changed[0]} in evaluation mode too, so that its evaluation could not be repeated; "
                f"{advice}"
            )

    def _limited(self) -> list[str]:
        """The parameters that an evaluation changes in place when they are large, as after some training."""
        import torch

        from fedcohort.core.network_copies import copy_of

        with suppress(Exception), torch.no_grad():  # some modules cannot be copied, or computed with such parameters
            twin = copy_of(self.module).eval()
            for parameter in twin.parameters():
                parameter.mul_(LARGE)
            before = {name: parameter.clone() for name, parameter in twin.named_parameters()}
            twin(self.samples)
            after = dict(twin.named_parameters())
            return [name for name in before if not torch.equal(_comparable(after[name]), _comparable(before[name]))]
        return []

    def _no_probabilities(self, outputs: object) -> None:
        """Warn if the outputs are probabilities."""
        import torch

        if not (self.logits and isinstance(outputs, torch.Tensor)) or outputs.shape[-1] < 2:
            return
        shares = outputs.double()
        if bool((shares >= 0).all()) and bool(((shares.sum(dim=-1) - 1).abs() < ONE_TO).all()):
            warnings.warn(
                f"model = {self.name}: returns probabilities (each row sums to 1), but training.loss takes logits and applies softmax "
                "itself, so that the model would learn slowly; leave out the softmax at its end",
                stacklevel=6,
            )

    def _training(self, twin: "nn.Module", before: Mapping[str, object]) -> None:
        """Outputs in training mode have the right shape, and depend on trained parameters; ``before`` are the attributes before all
        forward passes."""
        import torch

        parameters = dict(twin.train().named_parameters())
        with torch.enable_grad(), torch_seeded(0, self.samples.device):
            outputs = self._called(twin, self.samples, " in training mode")
        self._expect(outputs, len(self.samples), " in training mode")
        after = dict(twin.named_parameters())
        if replaced := [name for name, parameter in parameters.items() if after.get(name) is not parameter]:
            raise UsageError(
                f"model = {self.name}: its forward pass puts another object in the place of the parameter {replaced[0]}, which would "
                "be neither trained nor sent; change its values instead (with torch.no_grad(): parameter.copy_(...))"
            )
        if not (isinstance(outputs, torch.Tensor) and outputs.requires_grad):
            raise UsageError(
                f"model = {self.name}: its outputs do not depend on parameters that are trained; do not detach them, or compute them "
                "under torch.no_grad()"
            )
        if twin is not self.module:
            self._gradients(outputs)
        now = _plain_attributes(twin).items()
        changed = [
            name for name, value in now if _differ(before.get(name), value) and name.rpartition(".")[2] not in self.kept
        ]
        if changed:
            warnings.warn(
                f"model = {self.name}: its forward pass changes {changed[0]}, which is no buffer: each thread has a copy of the "
                "network with its own, so results can depend on the number of threads; register it as a buffer",
                stacklevel=5,
            )

    def _gradients(self, outputs: "Tensor") -> None:
        """Gradients can be computed: PyTorch's error in a client's backward pass would name no line of the network."""
        try:
            # the product gives the outputs a contiguous gradient, as a loss does; that of a sum has strides of 0, which functions of
            # users may refuse; backward(gradient) would load sympy, which takes a second
            (outputs * outputs.new_ones(outputs.shape)).sum().backward()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition(" Hint:")[0]
            raise UsageError(
                f"model = {self.name}: its gradients cannot be computed: {reason}{place_of(error)}"
            ) from error

    def _called(self, twin: "nn.Module", samples: "Tensor", mode: str) -> object:
        """The outputs for some samples."""
        try:
            outputs: object = twin(samples)
        except Exception as error:
            cure = "use nn.Embedding(shape.vocabulary, …)" if self.tokens else "convert them in the network (x.float())"
            raise UsageError(
                f"model = {self.name}: cannot process samples of shape {self.shape}{mode}: {type(error).__name__}: "
                f"{error}{place_of(error)}{f'; the samples are int64: {cure}' * (not samples.is_floating_point())}"
            ) from error
        return outputs

    def _expect(self, outputs: object, count: int, mode: str) -> None:
        """Refuse outputs of another shape."""
        import torch

        given = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        if given != [count, *self.outputs]:
            samples = f"{count} sample{'s' * (count != 1)}"
            in_record = isinstance(getattr(outputs, "logits", None), torch.Tensor)
            advice = ": write a network whose forward pass returns self.model(x).logits" if in_record else ""
            raise UsageError(
                f"model = {self.name}: returns {given} for {samples} of {self.kind}{mode}; it should return {self.returned} "
                f"{[count, *self.outputs]}{advice}"
            )


def _differ(before: object, after: object) -> bool:
    """Whether an attribute has another value; not if it had none, as the place for a tensor that is kept to be looked at."""
    import torch

    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        return not torch.equal(before, after)
    return before is not None and type(before) is type(after) and before != after


def _entries(module: "nn.Module") -> dict[str, "Tensor"]:
    """The tensors of the network's state, which may have other things as well."""
    import torch

    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _comparable(value: "Tensor") -> "Tensor":
    """A dense tensor in which NaN is a number: it would not be equal to itself."""
    import torch

    value = value.to_dense() if value.layout != torch.strided else value
    return value.nan_to_num(12345.0) if value.is_floating_point() else value


def _plain_attributes(module: "nn.Module") -> Mapping[str, object]:
    """The attributes of the network or of its parts that are numbers, texts or tensors, and the lengths of lists, by name.

    The mode is none of them, because the training sets it for each client, and neither are weights that PyTorch computes anew before
    each forward pass.
    """
    import torch

    found: dict[str, object] = {}
    for part_name, part in module.named_modules():
        skipped = {"training", *_computed_before(part)}
        for name, value in vars(part).items():
            if name in skipped:
                continue
            if isinstance(value, torch.Tensor):
                found[f"{part_name}.{name}".lstrip(".")] = _comparable(value.detach().clone())
            elif isinstance(value, _PLAIN):
                found[f"{part_name}.{name}".lstrip(".")] = value
            elif isinstance(value, list | dict) and not name.startswith("_"):
                found[f"{part_name}.{name}".lstrip(".")] = len(value)
    return found


def _computed_before(part: "nn.Module") -> set[object]:
    """The attributes that ``weight_norm``, ``spectral_norm`` or ``prune`` of ``torch.nn.utils`` compute before each forward pass."""
    hooks = [hook for hook in part._forward_pre_hooks.values() if type(hook).__module__.startswith("torch.nn.utils.")]
    return {getattr(hook, name, None) for hook in hooks for name in ("name", "_tensor_name")}
