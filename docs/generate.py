"""Write the tables of the documentation from the code, so that every default and every docstring is written in one place only.

    python docs/generate.py            update the pages that are out of date
    python docs/generate.py --check    write nothing; print the names of pages that are out of date, and exit with 1 if there are any

The rest of a page is written by hand. ``BLOCKS[NAME]()`` replaces the text between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.
"""

import argparse
import ast
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedcohort.algorithms import ALGORITHMS, LOSSES, Algorithm, Loss, Members, Problem, Update, WeightMode
from fedcohort.cli.json_formats import DOCUMENTS
from fedcohort.cli.json_schema import json_schema, keys_of
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import Parameter, describe
from fedcohort.core.plugins import Card, Table
from fedcohort.core.words.synonyms import ALSO_KNOWN_AS
from fedcohort.engines.base import Engine
from fedcohort.experiment import Experiment
from fedcohort.experiment import sections as schema
from fedcohort.experiment.nested_values import merge, nested
from fedcohort.experiment.pairings import NEEDED_FROM_STRATEGY, check
from fedcohort.federation import Availability, FeatureShift, LabelNoise, Latency, Network, Rule
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.data.load_dataset import NAMES
from fedcohort.models import Model
from fedcohort.record.round_rows import ClientRow, LedgerRow, RoundRow
from fedcohort.rounds.round_clock import RoundClock
from fedcohort.selection import (
    QUESTIONS,
    STRATEGIES,
    Census,
    Cohort,
    Outcome,
    Progress,
    Round,
    Selector,
    StoppingRule,
    Why,
)
from fedcohort.training.stopping_rules import RULES

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # for the results, which are no part of the package
from results.pages import blocks as result_blocks  # noqa: E402
from results.speed_cases import speed_details, speed_overview  # noqa: E402

SOURCE = Path(schema.__file__).parents[1]
PAGES = (
    "experiment-file.md", "strategies.md", "write-a-strategy.md", "design.md", "algorithms.md", "flower.md", "race.md",
    "deployment.md", "reliability.md", "regression.md", "results.md", "sequences.md", "json-output.md", "performance.md",
    "atlas.md", "cluster.md", "diagnoses.md", "compare-strategies.md",
)  # fmt: skip
STATUS = {
    "paper": "`paper`: implemented as its source describes it",
    "code": "`code`: also checked against a public implementation",
    "ours": "`ours`: our interpretation or design",
}


# --- pieces of Markdown --------------------------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """The text of a docstring as Markdown: single backticks, no Sphinx roles, no reference numbers such as ``(D12)``."""
    text = re.sub(r" \([DEGHS]\d+\)", "", text)
    text = re.sub(r"``(.+?)``", lambda code: f"`{' '.join(code[1].split())}`", text, flags=re.DOTALL)
    return re.sub(r":\w+:`~?(.+?)`", r"`\1`", text)


def toml_value(value: Any) -> str:
    """A default value as it is written in an experiment file."""
    if isinstance(value, dict):
        return "`{ " + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + " }`"
    if value in (None, "required"):
        return value or "not set"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def kind(words: str) -> str:
    """A type for a table cell. A bar would end the cell, so ``clip | affine`` becomes two quoted words."""
    words = words.removesuffix(" or none")
    if " | " in words:
        return ", ".join(f'`"{word}"`' for word in words.split(" | "))
    plain = {"str": "string"}
    return " or ".join(plain.get(word, word) for word in words.split(" or "))


def table(rows: Iterable[Parameter], key: str = "key") -> str:
    """A table of parameters."""
    lines = [f"| {key} | type | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| `{row.name}` | {kind(row.type)} | {toml_value(row.default)} | {prose(row.doc)} |")
    return "\n".join(lines)


def first_sentence(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return prose(" ".join(inspect.cleandoc(text).split("\n\n")[0].split()))


def explained(docstring: str) -> str:
    """A docstring as Markdown. Paragraphs with formulas or numbered steps keep their layout."""
    parts = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if re.search(r"^( +\S|\d\. )", paragraph, re.MULTILINE):
            parts.append(f"```text\n{textwrap.dedent(paragraph).replace('``', '')}\n```")
        else:
            parts.append(prose(paragraph))
    return "\n\n".join(parts)


# --- the experiment file -----------------------------------------------------------------------------------------------------


def section(name: str) -> str:
    """The keys of a section, and the plug-ins that it can name."""
    found = Experiment.model_fields[name].annotation
    assert isinstance(found, type)
    if issubclass(found, schema.Choice):
        return f"{plugs(found.table, '###')}" if found is schema.Model else _linked(found)
    parts = [table(row for row in describe(found) if not isinstance(row.default, schema.Choice))]
    for row in describe(found):
        if isinstance(row.default, schema.Choice):
            choice = type(row.default)
            parts.append(f"### {row.name}\n\n{first_sentence(choice.__doc__ or '')} Default: `{row.default.name}`.")
            parts.append(plugs(choice.table, "####"))
    return "\n\n".join(parts)


def other_sections() -> str:
    """The sections that have no handwritten heading on the page, each with a generated one."""
    page = (DOCS / "experiment-file.md").read_text(encoding="utf-8")
    missing = [name for name in SECTIONS if f"<!-- begin section {name} -->" not in page]
    return "\n\n".join(f"## {name}\n\n{SECTIONS[name]}\n\n{section(name)}" for name in missing)


def _linked(choice: type[schema.Choice]) -> str:
    """Links to the plug-ins of a section that are described on another page, and the parameters that all of them have."""
    links = ", ".join(f"[`{name}`](strategies.md#{name})" for name in choice.table.builtin)
    common = describe(Algorithm) if choice is schema.Algorithm else describe(choice)
    return f"`name` is one of {links}.\n\n{table(row for row in common if row.name not in ('name', 'parameters'))}"


def plugs(names: Table, heading: str) -> str:
    """The plug-ins of a table, each with its docstring and its parameters."""
    parts = []
    for name in names.builtin:
        found = names.find(name, name)
        parts.append(f"{heading} {name}\n\n{explained(found.__doc__)}")
        if rows := describe(found):
            parts.append(table(rows))
    return "\n\n".join(parts)


def top_level() -> str:
    """The keys before the first section."""
    return table(row for row in describe(Experiment) if row.name not in (*SECTIONS, "variants", "sweep"))


def sections() -> str:
    """A table with one line per section."""
    lines = ["| section | what it describes |", "|---|---|"]
    for name, doc in SECTIONS.items():
        lines.append(f"| [`[{name}]`](#{name}) | {doc} |")
    return "\n".join(lines)


def _says(cls: type) -> str:
    sentence = first_sentence(cls.__doc__ or "")
    return re.sub(r"^The `\[\w+\]` section: (\w)", lambda match: match[1].upper(), sentence)


SECTIONS = {
    name: _says(field.annotation)
    for name, field in Experiment.model_fields.items()
    if inspect.isclass(field.annotation) and hasattr(field.annotation, "__pydantic_fields__")
}


# --- strategies and algorithms -------------------------------------------------------------------------------------------------


def overview(names: Table) -> str:
    """A table with one line per plug-in."""
    lines = ["| name | what it does | source | status |", "|---|---|---|---|"]
    for name in names.builtin:
        cls = names.find(name, name)
        lines.append(
            f"| [`{name}`](#{name}) | {first_sentence(cls.__doc__)} | {cls.card.source} | `{cls.card.status}` |"
        )
    return "\n".join(lines)


def catalogue(names: Table, shared: type | None = None) -> str:
    """A section for each name. Names of one module share its docstring. Parameters of ``shared`` are left to another table,
    unless they have another default or range."""
    everywhere = {(row.name, row.type, row.default) for row in describe(shared)} if shared else set()
    parts, first_of = [], {}
    for name in names.builtin:
        cls = names.find(name, name)
        module = inspect.getmodule(cls)
        first = first_of.setdefault(module, name)
        parts.append(f"### `{name}`\n\n{first_sentence(cls.__doc__)}")
        parts.append(
            explained(module.__doc__) if first == name else f"The formulas are in the section [`{first}`](#{first})."
        )
        parts.append(_card(name, cls.card))
        rows = [row for row in describe(cls) if (row.name, row.type, row.default) not in everywhere]
        parts.append(
            table(rows, "parameter") if rows else "It has no " + ("further parameters." if shared else "parameters.")
        )
    return "\n\n".join(parts)


def _card(name: str, card: Card) -> str:
    lines = [
        *([f"* Also known as: {', '.join(ALSO_KNOWN_AS[name])}"] if name in ALSO_KNOWN_AS else []),
        f"* Source: {card.source}",
        f"* Status: {STATUS[card.status]}",
        f"* Asks clients for: {card.asks}",
        f"* Discloses about a client, beyond its update: {card.discloses}",
        f"* The server must know, besides client ids: {card.knows}",
        f"* Server work per round: {card.cost}",
        *(
            [f"* How it uses the score of a model (accuracy, or R² of numeric labels): {card.score}"]
            if card.score != Card.score
            else []
        ),
    ]
    return "\n".join(lines)


# --- contracts -------------------------------------------------------------------------------------------------------------------


def attributes(cls: type) -> str:
    """The section ``Attributes:`` of a docstring, as a table."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w[\w, ()]*): ((?:.*\n?)(?:^      +.*\n?)*)", text, re.MULTILINE)
    lines = [f"| `{cls.__name__}` | |", "|---|---|"]
    lines += [f"| `{name}` | {prose(' '.join(words.split()))} |" for name, words in entries]
    return "\n".join(lines)


def run_tables() -> str:
    """The columns of the tables of a run."""
    rows = {"run.rounds": RoundRow, "run.clients": ClientRow, "run.ledger": LedgerRow}
    return "\n\n".join(attributes(cls).replace(f"`{cls.__name__}`", f"`{name}`", 1) for name, cls in rows.items())


def contract(*classes: type) -> str:
    """The public methods of classes: signatures, and the first sentence of each docstring."""
    parts = []
    for cls in classes:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(tree, ast.ClassDef)
        lines = [f"class {cls.__name__}:"]
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            said = first_sentence(ast.get_docstring(node) or "").partition(". ")[0].rstrip(".")
            returns = ast.unparse(node.returns or ast.Constant(None))
            is_property = any(ast.unparse(mark) == "property" for mark in node.decorator_list)
            method = f"def {node.name}({ast.unparse(node.args)}) -> {returns}: ..."
            says = f"{node.name}: {returns}" if is_property else method
            lines += textwrap.wrap(said, 110, initial_indent="    # ", subsequent_indent="    # ")
            lines.append(f"    {says}")
        parts.append("\n".join(lines))
    code = formatted("\n\n\n".join(parts))
    return f"```python\n{code}\n```"


def formatted(code: str) -> str:
    """Code in the style of ``ruff format``, which checks the code blocks of Markdown files, too."""
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "--stdin-filename", "x.py", "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout.strip()


PACKAGES = (
    "core", "measures", "algorithms", "models", "federation", "selection", "experiment", "training", "engines",
    "record", "rounds", "runs", "study", "racing", "report", "testing", "chooser", "flower", "api", "cli",
)  # fmt: skip
"""Packages and modules at the top level of the source, each after those that it imports."""


def rooms() -> str:
    """Every package and its modules, with the first sentence of their docstrings."""
    parts = []
    for package in PACKAGES:
        folder, file = SOURCE / package, SOURCE / f"{package}.py"
        parts.append(
            f"**`{file.name if file.exists() else package}`**: {_summary(file if file.exists() else folder / '__init__.py')}."
        )
        if folder.exists():
            parts += _tables(folder, package)
    return "\n\n".join(parts)


def _tables(folder: Path, package: str) -> list[str]:
    """The table of a package's modules, followed by those of the packages in it, each with its docstring above."""
    own = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py" and _summary(path))
    rows = [f"| `{path.name}` | {_summary(path)} |" for path in own]
    parts = ["\n".join(["| module | what it does |", "|---|---|", *rows])] if rows else []
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        name = f"{package}/{inner.name}"
        parts += [f"*`{name}`*: {_summary(inner / '__init__.py')}.", *_tables(inner, name)]
    return parts


def _summary(path: Path) -> str:
    """The first sentence of a module's docstring, without its period."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return first_sentence(text).partition(". ")[0].rstrip(".")


def questions() -> str:
    """A table of the questions that a strategy can ask."""
    lines = ["| question | what the server learns | answers per client | forward passes |", "|---|---|---|---|"]
    for name, cls in QUESTIONS.items():
        passes = "those of its training" if cls.trains else f"{cls().passes:g}"
        lines.append(
            f"| `{name}({'participants' if name == 'LossChange' else ''})` | {cls.reveals} | {cls.numbers} | {passes} |"
        )
    return "\n".join(lines)


def refused() -> str:
    """The refused pairs of algorithm and strategy, found by trying all of them."""
    lines = ["| algorithm | strategy | message |", "|---|---|---|"]
    for algorithm in ALGORITHMS.builtin:
        said: dict[str, list[str]] = {}
        for strategy in STRATEGIES.builtin:
            try:
                check(STRATEGIES.find(strategy, "")(), ALGORITHMS.find(algorithm, "")())
            except UsageError as error:
                said.setdefault(str(error).replace(STRATEGIES.find(strategy, "").__name__, "…"), []).append(strategy)
        for message, strategies in said.items():
            fine = [f"`{name}`" for name in STRATEGIES.builtin if name not in strategies]
            lines.append(f"| `{algorithm}` | all but {', '.join(fine)} | {message} |")
    for weights, what in NEEDED_FROM_STRATEGY.items():
        words = "inclusion probabilities" if what == "inclusion" else what
        refusal = f"those that give no {words}, see [below](#weights) | … gives no {words}"
        lines.append(f'| any with `weights = "{weights}"` | {refusal} |')
    for algorithm in ALGORITHMS.builtin:
        taken = [mode for mode in get_args(WeightMode) if _takes(algorithm, mode)]
        if len(taken) < len(get_args(WeightMode)):
            lines.append(
                f"| `{algorithm}` with other weights than {', '.join(f'`{mode}`' for mode in taken)} | any "
                f"| {'weights must sum to 1' if len(taken) > 1 else 'counts every client once'} |"
            )
    return "\n".join(lines)


def sequences() -> str:
    """The plug-ins that sequences of tokens do not allow, found by trying all of them."""
    from fedcohort.experiment.given_objects import Given
    from fedcohort.federation.data.token_data import from_tokens
    from fedcohort.runs.sequence_checks import check_sequences

    def refusals(path: str, table: Table, data: Dataset) -> str:
        names = []
        for name in table.builtin:
            values = {
                "model": "lstm",
                "public": {"name": "holdout"},
                "federation": {"holdout": 0.2, "partition": "iid"},
            }
            experiment = Experiment(**merge(values, nested({path: {"name": name}}, ""), ""))
            try:
                check_sequences(experiment, Given(), data)
            except UsageError:
                names.append(f"`{name}`")
        return ", ".join(names) or "–"

    tokens = np.arange(12).reshape(4, 3) % 5
    each_position, by_class = (from_tokens((tokens, y), (tokens, y)) for y in (tokens, np.arange(4) % 2))
    sections = [(path, type(attrgetter(path)(Experiment()))) for path in ("model", "algorithm", "federation.partition")]
    sections += [
        (path, type(attrgetter(path)(Experiment()))) for path in ("federation.label_noise", "federation.feature_shift")
    ]
    lines = ["| setting | refused in next-token prediction | refused in sequence classification |", "|---|---|---|"]
    for path, choice in sections:
        cells = [refusals(path, choice.table, data) for data in (each_position, by_class)]
        lines.append(f"| `{path}` | {' | '.join(cells)} |")
    lines.append("| `training.augment` | `flip`, `flip_shift` | `flip`, `flip_shift` |")
    return "\n".join([*lines, "| `selection.adaptive_alpha` (`conformal`) | `true` | – |"])


def scores() -> str:
    """The strategies and algorithms that use a score, and what they assume about it."""
    lines = ["| name | what it does with the score |", "|---|---|"]
    for table in (STRATEGIES, ALGORITHMS):
        for name in table.builtin:
            card = table.find(name, name).card
            if card.score != Card.score:
                lines.append(f"| `{name}` | {card.score} |")
    return "\n".join(lines)


def refused_for_numbers() -> str:
    """The strategies and algorithms that refuse numeric labels with their default parameters, and why."""
    lines = ["| name | reason |", "|---|---|"]
    for table in (STRATEGIES, ALGORITHMS):
        for name in table.builtin:
            reason = table.find(name, name)().refuses("numbers")
            if reason:
                lines.append(f"| `{name}` | {reason} |")
    return "\n".join(lines)


def _takes(algorithm: str, weights: str) -> bool:
    try:
        ALGORITHMS.find(algorithm, "")(weights=weights)
    except UsageError:
        return False
    return True


def gives() -> str:
    """The strategies that provide what each weight mode needs."""
    lines = ["| weights | strategies |", "|---|---|"]
    for weights, what in NEEDED_FROM_STRATEGY.items():
        names = [f"`{name}`" for name in STRATEGIES.builtin if what in STRATEGIES.find(name, "").gives]
        lines.append(f"| `{weights}` | {', '.join(names)} |")
    return "\n".join(lines)


# --- the campaign ----------------------------------------------------------------------------------------------------------------


def campaign() -> str:
    """The last figures of every attack, and where and with what they were made."""
    rows = json.loads((DOCS.parent / "results" / "campaign.json").read_text("utf-8"))["rows"]
    lines = ["| attack | what was done | count | failures | minutes | commit | date |", "|---|---|--:|--:|--:|---|---|"]
    for row in rows:
        figures = "".join(f"; {name}: {value}" for name, value in row["figures"].items())
        lines.append(
            f"| `{row['attack']}` | {row['did']}{figures} | {row['count']:,} {row['unit']} | {row['failures']} "
            f"| {row['seconds'] / 60:.1f} | `{row['commit']}` | {row['date']} |"
        )
    return "\n".join([*lines, "", *_machines(rows)]) if rows else "No campaign has been kept yet."


def _machines(rows: list[dict[str, Any]]) -> list[str]:
    """The machine, the versions and the seed of each group of rows."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
        words = f"{row['processor']}, {row['system']}; {versions}; seed {row['seed']}"
        groups.setdefault(words, []).append(f"`{row['attack']}`")
    if len(groups) == 1:
        return [f"All rows: {next(iter(groups))}."]
    return [f"* {', '.join(names)}: {words}" for words, names in groups.items()]


# --- Flower ----------------------------------------------------------------------------------------------------------------------


def superlink() -> str:
    """What one SuperLink carries, and where and with what it was measured."""
    path = DOCS.parent / "results" / "superlink.json"
    if not path.exists():
        return "No measurement has been kept yet."
    rows = json.loads(path.read_text("utf-8"))["rows"]
    heads = (
        "nodes",
        "bytes each way",
        "idle: cores",
        "a phase: processor s",
        "ms for a message",
        "MB/s of a core",
        "largest memory",
    )
    lines = [f"| {' | '.join(heads)} |", "|--:" * len(heads) + "|"]
    notes = []
    for row in rows:
        reached = row["phases"][-1].get("nodes", row["nodes"])
        used = float(np.median([phase["processor_seconds"] for phase in row["phases"]]))
        star = ""
        if reached < row["nodes"]:
            seconds, failed = row["phases"][-1]["seconds"], row["phases"][-1]["failed"]
            star = " \\*"
            replied = "all replied" if not failed else f"{failed} of them gave no reply"
            notes.append(
                f"\\* Ended after {reached} of {row['nodes']} nodes, which took {seconds / 60:.0f} minutes; {replied}. "
                "The other nodes were connected and polled."
            )
        lines.append(
            f"| {row['nodes']} | {row['bytes']:,} | {row['idle_cores']:.2f} | {used:.1f}{star} | {1000 * used / reached:.0f} "
            f"| {2 * reached * row['bytes'] / used / 1e6:.1f} | {row['superlink_bytes'] / 1e6:.0f} MB |"
        )
    about = sorted({f"commit `{row['commit']}`, {row['date'][:10]}, flwr {row['flwr']}" for row in rows})
    load = max(row["load_before"] for row in rows)
    words = (
        f"Written by `python benchmarks/superlink.py` on {rows[0]['cores']} cores ({'; '.join(about)}). Other programs ran beside it, "
        f"with a load average of up to {load:.0f}. Processor time is less sensitive to that than waiting times, but is noisy as well."
    )
    lines += ["", *(f"{note}\n" for note in notes), words]
    return "\n".join(lines)


def cluster() -> str:
    """What rounds on a private Ray cluster cost beside local rounds, and how many hosts bring something."""
    path = DOCS.parent / "results" / "cluster.json"
    if not path.exists():
        return "Not measured yet: `make bench-ray KEEP=1`."
    made = json.loads(path.read_text("utf-8"))
    lines = [
        "| work | engine, plan | seconds a round | × local | driver, ms a client | hosts that bring something |",
        "|---|---|--:|--:|--:|--:|",
    ]
    training = {}
    for row in made["rows"]:
        if "ratio" not in row:
            continue
        if row["engine"].startswith("local"):
            training[row["work"]] = 1000 * row["round_s"] * row["hosts"] / row["clients"]
            hosts = "–"
        else:
            hosts = f"{max(1, int(training[row['work']] / row['driver_ms_per_client']))}"
        wall, driver = f"{row['round_s']:.3f} | {row['ratio']:.2f}", f"{row['driver_ms_per_client']:.2f}"
        lines.append(f"| {row['work']} | {row['engine']} | {wall} | {driver} | {hosts} |")
    notes = []
    for row in made["rows"]:
        if "driver_s" in row:
            notes.append(
                f"{row['work']}, plan `means`: {row['round_s']:.1f} s a round, {row['driver_s']:.2f} s of the driver."
            )
        if "driver_growth" in row:
            notes.append(
                f"{row['work']}: from a tenth of the rounds to the last, the driver's memory grew by "
                f"{100 * row['driver_growth']:.1f}%, and that of the hosts by {100 * row['hosts_growth']:.1f}%."
            )
    versions = ", ".join(f"{name} {made['versions'][name]}" for name in ("python", "torch", "ray"))
    about = f"*`{made['command']}` on {made['processor']}; {versions}; commit `{made['commit']}`, {made['date']}.*"
    return "\n".join([*lines, "", *(f"* {note}" for note in notes), "", about])


def flower_questions() -> str:
    """A table of the keywords of ``answers``."""
    from fedcohort.flower.answering import keyword_of

    lines = ["| keyword | what the server learns | numbers |", "|---|---|---|"]
    for name, cls in QUESTIONS.items():
        if name != "LossChange":
            lines.append(f"| `{keyword_of(name)}` | {cls.reveals} | {cls.numbers} |")
    return "\n".join(lines)


def flower_needs() -> str:
    """What each strategy needs of clients and of the server, found by playing it with its default settings."""
    from fedcohort.flower import requirements

    lines = ["| strategy | class | keywords of `answers`, besides `num_samples` | server |", "|---|---|---|---|"]
    for name in STRATEGIES.builtin:
        strategy = STRATEGIES.find(name, name)
        needed = requirements(strategy())
        words = ", ".join(f"`{word}`" for word in needed.keywords if word != "loss_change") or "–"
        server = "validation set" if "validation" in needed.needs else "–"
        if "LossChange" in needed.questions:
            server = "refused in runs that are long enough for a trial round of training, which is thrown away"
        lines.append(f"| [`{name}`](strategies.md#{name}) | `{strategy.__name__}` | {words} | {server} |")
    return "\n".join(lines)


# --- pages ---------------------------------------------------------------------------------------------------------------------


def json_formats() -> str:
    """The documents of --json, each with its keys and those of the records in it."""
    return "\n\n".join(f"## {name}\n\n{meaning}\n\n{_records(name)}" for name, meaning in DOCUMENTS.items())


def _records(name: str) -> str:
    schema = json_schema(name)
    parts = [_keys(name)]
    parts += [f"`{record}`:\n\n{_keys(record)}" for record in schema["$defs"]]
    return "\n\n".join(parts)


def _keys(record: str) -> str:
    lines = ["| key | type | meaning |", "|---|---|---|"]
    for key in keys_of(record):
        lines.append(f"| {'others' if key.name == '*' else f'`{key.name}`'} | `{key.type}` | {key.meaning} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "json formats": json_formats,
    "sections": sections,
    "top level": top_level,
    **{f"section {name}": partial(section, name) for name in SECTIONS},
    "other sections": other_sections,
    "datasets": lambda: ", ".join(f"`{name}`" for name in NAMES),
    "losses": lambda: plugs(LOSSES, "####"),
    "complete": lambda: f"```toml\n{Experiment().to_toml().strip()}\n```",
    "strategy overview": lambda: overview(STRATEGIES),
    "strategies": lambda: catalogue(STRATEGIES),
    "algorithm overview": lambda: overview(ALGORITHMS),
    "algorithms": lambda: catalogue(ALGORITHMS, Algorithm),
    "weights": lambda: table(describe(Algorithm), "parameter"),
    "seen": lambda: "\n\n".join(attributes(cls) for cls in (Census, Round, Outcome)),
    "returned": lambda: "\n\n".join(attributes(cls) for cls in (Cohort, Why)),
    "update": lambda: "\n\n".join(attributes(cls) for cls in (Update, Members)),
    "problem": lambda: attributes(Problem),
    "run tables": run_tables,
    "progress": lambda: attributes(Progress),
    "stopping rules": lambda: plugs(RULES, "####"),
    "card": lambda: attributes(Card),
    "refused": refused,
    "sequences": sequences,
    "scores": scores,
    "refused for numbers": refused_for_numbers,
    "gives": gives,
    "rooms": rooms,
    "campaign": campaign,
    "questions": questions,
    "contract of a strategy": lambda: contract(Selector),
    "contract of an algorithm": lambda: contract(Algorithm, Problem),
    "contract of a stopping rule": lambda: contract(StoppingRule),
    "contract of a loss": lambda: contract(Loss),
    "contract of an engine": lambda: contract(Engine),
    "contract of a clock": lambda: contract(RoundClock),
    "flower questions": flower_questions,
    "superlink": superlink,
    "cluster": cluster,
    "flower needs": flower_needs,
    "contracts of the federation": lambda: contract(
        Rule, LabelNoise, FeatureShift, Latency, Network, Availability, Model
    ),
    "speed cases": speed_overview,
    "speed case details": speed_details,
    **result_blocks(),
}


def fill(page: str) -> str:
    """The text of a page with every block written anew."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise SystemExit(f"there is no block {name!r}; known: {', '.join(BLOCKS)}")
        return f"<!-- begin {name} -->\n{BLOCKS[name]()}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (?P<name>[\w -]+?) -->.*?<!-- end (?P=name) -->", block, page, flags=re.DOTALL)


def stale() -> dict[Path, str]:
    """The pages that are out of date, each with its new text."""
    pages = {DOCS / name: (DOCS / name).read_text(encoding="utf-8") for name in PAGES}
    filled = {path: fill(text) for path, text in pages.items()}
    return {path: text for path, text in filled.items() if text != pages[path]}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write the tables of the documentation from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    only_check = parser.parse_args().check
    found = stale()
    for path, text in found.items():
        print(f"{path.name}: {'out of date; run python docs/generate.py' if only_check else 'updated'}")
        if not only_check:
            path.write_text(text, encoding="utf-8")
    return int(only_check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
