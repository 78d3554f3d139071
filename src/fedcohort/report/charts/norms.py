"""Say what the norms in scores and reports of clients are norms of: strategies use the word for different things."""

from collections.abc import Collection

from fedcohort.report.data.report_data import Reading

__all__ = ["ABOUT_REPORTED", "about_norm"]

EUCLIDEAN = "It is the Euclidean norm over all weights of the model"
OF_WEIGHTS = f"{EUCLIDEAN}, in the units of the weights."

UPDATES = (
    f"how far the client's updates moved the model per local step, a running mean over its past rounds. {OF_WEIGHTS}"
)
LAST_UPDATE = f"how far the client's last update moved the model per local step. {OF_WEIGHTS}"
UPDATE = f"how far the update that the client trained in this round moves the model. {OF_WEIGHTS}"
GRADIENT = (
    f"the size of the gradient of the client's mean loss. {EUCLIDEAN}, in the units of the loss per unit of a weight."
)

ABOUT_REPORTED = f"Update norm: how far the client's update moved the model. {OF_WEIGHTS}"
"""What the caption of the report ``update_norm`` says."""


def about_norm(reading: Reading, terms: Collection[str]) -> str:
    """What the term ``norm`` of a strategy is, in sentences with a space before them; empty without this term, and for strategies of a
    user's own, which can mean anything by it."""
    selection = reading.experiment.to_dict()["selection"]
    of_gradient = LAST_UPDATE if selection.get("gradient") == "cached" else GRADIENT
    norms = {"rizk": UPDATES, "ocs": UPDATE, "aocs": UPDATE, "feel": of_gradient}
    what = norms.get(str(selection["name"])) if "norm" in terms else None
    return f" Norm: {what}" if what else ""
