"""Models for sequences of tokens: an LSTM and a small transformer.

Both embed the tokens, and return logits for every position (next-token prediction) or for the whole sequence (classification), as the
data ask for; see :class:`fedcohort.core.token_shape.TokenShape`. In next-token prediction, no position sees the tokens after it.
"""

from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Lt

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.token_shape import TokenShape
from fedcohort.models.base import Model

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Lstm", "Transformer"]


@parameters
class Lstm(Model):
    """An LSTM for tokens: embedding, LSTM and linear layers. A class is predicted from the mean of the outputs over positions.

    With the default parameters, 32 characters and 60 tokens of which each is predicted, it has 30,908 parameters. Hochreiter and
    Schmidhuber 1997; McMahan et al. 2017 (arXiv:1602.05629) train one on the plays of Shakespeare by role.
    """

    embedding: Annotated[int, Ge(1)] = 32
    """Length of the vector that stands for a token."""
    hidden: Annotated[int, Ge(1)] = 64
    """Number of units of each LSTM layer."""
    layers: Annotated[int, Ge(1)] = 1
    """Number of LSTM layers, each of which reads the outputs of the one before."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Probability with which training drops an output of each LSTM layer."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        from torch import nn

        tokens = _tokens("lstm", shape)
        own = self

        class Network(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(tokens.vocabulary, own.embedding)
                between = own.dropout if own.layers > 1 else 0.0
                self.lstm = nn.LSTM(own.embedding, own.hidden, own.layers, batch_first=True, dropout=between)
                self.dropout = nn.Dropout(own.dropout)
                self.head = nn.Linear(own.hidden, num_classes)

            def forward(self, x: "Tensor") -> "Tensor":
                outputs = self.dropout(self.lstm(self.embedding(x))[0])
                logits: Tensor = self.head(outputs if tokens.each_position else outputs.mean(1))
                return logits

        return Network()


@parameters
class Transformer(Model):
    """A small transformer for tokens. It has embeddings of tokens and positions, and blocks of attention and a perceptron, each
    after a layer norm.

    A class is predicted from the mean over positions, which then attend to all others. With the default parameters, 32 characters and
    60 tokens of which each is predicted, it has 109,884 parameters. Vaswani et al. 2017, arXiv:1706.03762, with the order of norms of
    Xiong et al. 2020, arXiv:2002.04745.
    """

    width: Annotated[int, Ge(1)] = 64
    """Length of the vector of a position; a multiple of ``heads``."""
    heads: Annotated[int, Ge(1)] = 4
    """Number of attention heads."""
    layers: Annotated[int, Ge(1)] = 2
    """Number of blocks."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Probability with which training drops an entry of the embeddings, and of the outputs of attention and perceptrons."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            works = self.heads * -(-self.width // self.heads)
            raise UsageError(
                f"model.width = {self.width}: must be a multiple of model.heads = {self.heads}; use {works}, or other heads"
            )

    def build(self, shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """See :class:`Model`."""
        import torch
        from torch import nn

        tokens, own = _tokens("transformer", shape), self
        heads, each_position = self.heads, tokens.each_position

        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.other_norm = nn.LayerNorm(own.width), nn.LayerNorm(own.width)
                self.queries_keys_values = nn.Linear(own.width, 3 * own.width)
                self.joined = nn.Linear(own.width, own.width)
                self.perceptron = nn.Sequential(
                    nn.Linear(own.width, 4 * own.width), nn.GELU(), nn.Linear(4 * own.width, own.width)
                )
                self.dropout = nn.Dropout(own.dropout)

            def forward(self, x: "Tensor") -> "Tensor":
                x = x + self.dropout(self.attention(self.norm(x)))
                summed: Tensor = x + self.dropout(self.perceptron(self.other_norm(x)))
                return summed

            def attention(self, x: "Tensor") -> "Tensor":
                batch, length, width = x.shape
                parts = self.queries_keys_values(x).view(batch, length, 3, heads, width // heads)
                q, k, v = parts.permute(2, 0, 3, 1, 4)
                mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=each_position)
                joined: Tensor = self.joined(mixed.transpose(1, 2).reshape(batch, length, width))
                return joined

        class Network(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(tokens.vocabulary, own.width)
                self.positions = nn.Parameter(nn.init.normal_(torch.empty(tokens[0], own.width), std=0.02))
                self.dropout = nn.Dropout(own.dropout)
                self.blocks = nn.Sequential(*(Block() for _ in range(own.layers)))
                self.norm = nn.LayerNorm(own.width)
                self.head = nn.Linear(own.width, num_classes)

            def forward(self, x: "Tensor") -> "Tensor":
                outputs = self.norm(self.blocks(self.dropout(self.embedding(x) + self.positions)))
                logits: Tensor = self.head(outputs if each_position else outputs.mean(1))
                return logits

        return Network()


def _tokens(name: str, shape: tuple[int, ...]) -> TokenShape:
    """The shape of a sample; an error unless samples are sequences of tokens."""
    if not isinstance(shape, TokenShape):
        raise UsageError(
            f"model.name = {name!r}: needs sequences of tokens, such as data.name = 'dialogue' or fedcohort.from_tokens(…); the data "
            f"has samples of shape {shape}; use 'mlp' or 'logistic'"
        )
    return shape
