"""Client selection in a Flower app: a wrapper around any of Flower's strategies, and the answers of its clients.

It needs the extra ``flower`` (``pip install 'fedcohort[flower]'``). Flower is imported at the first use of one of these names.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names

if TYPE_CHECKING:
    from fedcohort.flower.answering import Asked, answers
    from fedcohort.flower.deployed.play_deployment import play_deployment
    from fedcohort.flower.rehearsal import Requirements, requirements
    from fedcohort.flower.selecting import Selecting

__all__ = ["Asked", "Requirements", "Selecting", "answers", "play_deployment", "requirements"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Asked": "answering:Asked",
        "Requirements": "rehearsal:Requirements",
        "Selecting": "selecting:Selecting",
        "answers": "answering:answers",
        "play_deployment": "deployed.play_deployment:play_deployment",
        "requirements": "rehearsal:requirements",
    },
)
