"""Whether the Python code of a local loss, which may be a user's, does nothing but compute; see
:mod:`fedcohort.training.code_reading.forward_code`."""

from torch import Tensor, nn

from fedcohort.algorithms.losses import Loss
from fedcohort.training.code_reading.attribute_places import attribute_places
from fedcohort.training.code_reading.forward_code import Check, Names, runs_unnamed

__all__ = ["loss_only_computes", "names_read_by_loss", "tensors_of_loss"]


def loss_only_computes(loss: Loss) -> bool:
    """Whether the loss does nothing but compute: it sets no attributes, and reads no lists that its code may change."""
    check = Check(_parts(loss))
    computes = check.function(type(loss).samples, loss) and all(map(check.part, _modules(loss)))
    return computes and not (runs_unnamed(loss) or check.stored or (check.reads_lists and check.changes_lists))


def names_read_by_loss(loss: Loss) -> list[tuple[Names, set[str]]]:
    """The names that the code of the loss reads, with all attributes of the loss and of its modules."""
    check = Check(_parts(loss))
    check.function(type(loss).samples, loss)
    for part in _modules(loss):
        check.part(part)
    own = [(vars(part), set(vars(part))) for part in check.parts]
    return [*own, *attribute_places(loss, check.loaded), *check.read]


def tensors_of_loss(loss: Loss) -> list[Tensor]:
    """The tensors that are attributes of the loss, such as weights of classes, and those of its modules."""
    own = [value for value in vars(loss).values() if isinstance(value, Tensor)]
    return own + [tensor for part in _modules(loss) for tensor in (*part.parameters(False), *part.buffers(False))]


def _modules(loss: Loss) -> list[nn.Module]:
    """The modules that are attributes of the loss, such as ``nn.CrossEntropyLoss``, and their parts."""
    own = [value for value in vars(loss).values() if isinstance(value, nn.Module)]
    return [part for value in own for part in value.modules()]


def _parts(loss: Loss) -> list[object]:
    return [loss, *_modules(loss)]
