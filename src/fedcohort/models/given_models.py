"""Make a model of what users give: a network, or a function or class that builds one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from fedcohort.core.errors import UsageError, one_line, shown
from fedcohort.core.user_code.own_code import is_of_package, raised_in, with_place
from fedcohort.models.base import Model

if TYPE_CHECKING:
    from torch import nn

__all__ = ["AnyModel", "as_model"]

BUILT = "_fedcohort_built"
"""Attribute of the trainable parameters of networks that functions of users have built: the parameter's id, which copies lack."""


class _UserModel(Model):
    """A user's module, or a function or class that builds one."""

    def __init__(self, given: "nn.Module | Callable[..., nn.Module]") -> None:
        self.given = given

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        import inspect

        from torch import nn

        if isinstance(self.given, nn.Module):
            return self._copied(self.given)
        of_package = is_of_package(self.given)  # such as timm.create_model, which takes a dozen others
        positional = [
            p
            for p in inspect.signature(self.given).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and (p.default is p.empty or not of_package)
        ]
        arguments = (shape, num_classes) if len(positional) >= 2 else ()
        try:
            module = self.given(*arguments)
        except Exception as error:
            function = raised_in(error)
            if function and not (arguments and isinstance(error, TypeError)):
                raise
            function = function or getattr(getattr(self.given, "func", self.given), "__name__", shown(self.given))
            with_what = (
                f"the shape of a sample and the number of classes, here {arguments!r}" if arguments else "no arguments"
            )
            raise UsageError(f"model: {function} raised {with_place(error)}; it is called with {with_what}") from error
        if not isinstance(module, nn.Module):
            raise UsageError(f"model = {shown(self.given)}: returned {type(module).__name__}, not a torch.nn.Module")
        self._check_new(module)
        return module

    def _check_new(self, module: "nn.Module") -> None:
        """Refuse trainable parameters of a network that was built before: threads, and runs, would train the same ones."""
        trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        if known := [name for name, parameter in trained.items() if getattr(parameter, BUILT, None) == id(parameter)]:
            raise UsageError(
                f"model = {shown(self.given)}: returned a network whose parameter {known[0]} is that of an earlier one; build a new "
                "network in each call, or give the network itself"
            )
        for parameter in trained.values():
            setattr(parameter, BUILT, id(parameter))

    def __deepcopy__(self, memo: dict[int, Any]) -> "_UserModel":
        """With a copy of a module; functions and classes are not copied."""
        from torch import nn

        return _UserModel(self._copied(self.given) if isinstance(self.given, nn.Module) else self.given)

    def _copied(self, module: "nn.Module") -> "nn.Module":
        """A copy of the user's module."""
        from fedcohort.core.network_copies import copy_of

        try:
            return copy_of(module)
        except Exception as error:
            raise UsageError(
                f"model = {type(module).__name__}: cannot be copied ({type(error).__name__}: {one_line(error)}); give its class, or a "
                "function that builds it, in place of the module"
            ) from error


AnyModel: TypeAlias = "Model | type[Model] | nn.Module | Callable[..., nn.Module]"
"""What users can pass as a model in Python: a :class:`Model`, a module, or a function or class that builds a module."""


def as_model(given: AnyModel) -> Model:
    """A :class:`Model` from what users can pass as a model: a Model, an ``nn.Module``, or a function or class that builds one.

    The function or class is called with ``(shape, num_classes)``, or without arguments if it takes fewer than two.

    Raises:
        UsageError: the object is none of these.
    """
    if isinstance(given, Model):
        return given
    if isinstance(given, type) and issubclass(given, Model):
        return cast(Callable[[], Model], given)()
    if not callable(given):
        raise UsageError(
            f"model = {shown(given)}: give a torch.nn.Module, or a function that builds one; clients train it by gradient descent"
            + (f"; a name is a setting: Experiment(model={given!r})" if isinstance(given, str) else "")
        )
    return _UserModel(cast("nn.Module | Callable[..., nn.Module]", given))
