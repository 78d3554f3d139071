"""The shape of a sequence of tokens, with what a model has to know about the tokens."""

from collections.abc import Iterable

__all__ = ["TokenShape"]


class TokenShape(tuple[int, ...]):
    """The shape of a sample that is a sequence of tokens, ``(L,)``: a tuple that also knows the vocabulary.

    Models receive it as ``shape``. Inputs of the network are then integers [batch, L] in 0..``vocabulary``-1, for ``nn.Embedding``.

    Attributes:
        vocabulary: number of different tokens.
        each_position: whether every position has a label of its own, as in next-token prediction. The network then returns logits
            [batch, L, K], in which position i may depend on the tokens up to i only; otherwise [batch, K].

    >>> shape = TokenShape((32,), vocabulary=60, each_position=True)
    >>> shape == (32,), shape.vocabulary
    (True, 60)
    """

    vocabulary: int
    each_position: bool

    def __new__(cls, shape: Iterable[int], vocabulary: int = 0, each_position: bool = False) -> "TokenShape":
        """See :class:`TokenShape`."""
        made = super().__new__(cls, shape)
        made.vocabulary, made.each_position = vocabulary, each_position
        return made
