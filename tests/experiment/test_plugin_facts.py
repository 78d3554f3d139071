"""The facts about plug-ins that a record keeps."""

import json
import subprocess
import sys

import pytest

from fedcohort.core import parameters
from fedcohort.experiment import Experiment
from fedcohort.experiment.plugin_facts import plugin_facts
from fedcohort.selection.strategies.oort import Oort


@pytest.mark.slow
def test_the_facts_are_the_same_if_python_leaves_docstrings_out() -> None:
    source = (
        "import json; from fedcohort.experiment import Experiment; from fedcohort.experiment.plugin_facts import plugin_facts;"
        "print(json.dumps(plugin_facts(Experiment())))"
    )
    done = subprocess.run([sys.executable, "-OO", "-c", source], capture_output=True, text=True, check=True)
    facts = plugin_facts(Experiment())
    assert facts["selection"]["summary"]
    assert json.loads(done.stdout) == facts


def test_facts_are_known_without_the_documentation_of_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read from the sources of plug-ins, which takes longer than all other preparations of a small run."""

    def read(cls: type) -> dict[str, str]:
        raise AssertionError(f"the source of {cls} is read")

    monkeypatch.setattr(parameters, "_docs_in_source", read)
    facts = plugin_facts(Experiment(selection={"name": "oort", "k": 3}))
    assert facts["selection"]["defaults"] == parameters.defaults(Oort)
