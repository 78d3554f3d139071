"""The facts about plug-ins that a record keeps."""

import json
import subprocess
import sys

import pytest

from fedcohort.experiment import Experiment
from fedcohort.experiment.plugin_facts import plugin_facts


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
