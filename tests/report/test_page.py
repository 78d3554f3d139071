"""The report page: its numbers are the database's, whatever the runs are called and however far they are."""

import json
import math
import re
import shutil
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest
from click.testing import CliRunner

import fedcohort
from fedcohort import measures
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.record import Run
from fedcohort.record.database import SEALED
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.layers import Layers
from fedcohort.report.live.live_server import Live
from fedcohort.report.page import page
from fedcohort.report.page_sections import figures
from fedcohort.report.write_page import write_page
from fedcohort.study.profile.batch_size_profile import Profile
from tests.experiments import small
from tests.records import seal_again
from tests.report.pages import Page

SECTIONS = ["result", "federation", "participation", "reasons", "cost", "how"]


def made(*paths: Path) -> Page:
    return Page(page(gather(find_runs(paths))))


@pytest.fixture(scope="module")
def whole(page_of_runs: Path) -> Page:
    return Page(page_of_runs.read_text("utf-8"))


@pytest.fixture(scope="module")
def by_label(runs: Path) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in find_runs([runs]):
        found.setdefault(run.meta["label"], []).append(run)
    return found


def test_a_page_may_name_files_that_are_not_unicode(tmp_path: Path) -> None:
    """Names of files in another encoding than that of the locale become surrogates, which UTF-8 does not have."""
    write_page(str(tmp_path / "page.html"), "name \udcfc.toml", quiet=True)
    assert (tmp_path / "page.html").read_bytes() == rb"name \udcfc.toml"


def test_the_sections_stand_in_the_order_of_the_questions(whole: Page) -> None:
    assert [a["id"] for tag, a in whole.tags if tag == "section"] == SECTIONS
    assert "nothing else" not in whole.text[:200]


def test_it_needs_nothing_but_itself(whole: Page) -> None:
    """No address is loaded: neither by the page's own tags nor, by its policy, by any script."""
    loading = [
        (tag, a) for tag, a in whole.tags if {"src", "href"} & set(a) and not (a.get("href") or "").startswith("#")
    ]
    assert loading == []
    policy = next(a["content"] or "" for tag, a in whole.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; ")
    assert "http" not in policy
    assert len(whole.text.encode()) < 6e6


def test_the_numbers_are_the_databases(whole: Page, by_label: dict[str, list[Run]]) -> None:
    for label, group in by_label.items():
        row = whole.row("results", label)
        tested = [run.query("SELECT test_accuracy FROM rounds ORDER BY round") for run in group]
        final = [values[-1][0] for values in tested]
        assert float(row["accuracy"]) == pytest.approx(np.mean(final), rel=1e-12)
        assert float(row["accuracy_sd"]) == pytest.approx(np.std(final, ddof=1), rel=1e-12)
        assert float(row["best_accuracy"]) == pytest.approx(np.mean([max(values)[0] for values in tested]), rel=1e-12)
        spent = [run.query("SELECT SUM(bytes_down + bytes_up) FROM ledger")[0][0] for run in group]
        assert float(row["bytes"]) == np.mean(spent)
        passes = [run.query("SELECT SUM(passes) FROM ledger")[0][0] for run in group]
        assert float(row["client_passes"]) == pytest.approx(np.mean(passes))
        counts = [np.bincount([c for (c,) in run.query("SELECT client FROM clients")], minlength=12) for run in group]
        jain = np.mean([measures.jain(x) for x in counts])
        assert float(row["jain"]) == pytest.approx(jain)
        assert float(whole.row("fairness", label)["jain"]) == pytest.approx(jain)


def test_the_ledger_is_the_databases(whole: Page, by_label: dict[str, list[Run]]) -> None:
    rows = {(row["strategy"], row["kind"]): row for row in whole.cells["ledger"]}
    assert ("loss", "LocalLoss") in rows
    for label, group in by_label.items():
        for kind in {kind for run in group for (kind,) in run.query("SELECT DISTINCT kind FROM ledger")}:
            for field in ("messages", "bytes_down", "bytes_up", "passes"):
                sums = [run.query(f"SELECT SUM({field}) FROM ledger WHERE kind = '{kind}'")[0][0] for run in group]
                assert float(rows[label, kind][field]) == pytest.approx(np.mean(sums))


def test_the_charts_draw_what_was_recorded(whole: Page, by_label: dict[str, list[Run]]) -> None:
    data = whole.payload["data"]
    for label, group in by_label.items():
        tested = np.array(
            [[a for (a,) in run.query("SELECT test_accuracy FROM rounds ORDER BY round")] for run in group]
        )
        drawn = [row for row in data["accuracy_rounds"] if row["strategy"] == label]
        np.testing.assert_allclose([row["mean"] for row in drawn], tested.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(
            [row["high"] for row in drawn], tested.mean(axis=0) + tested.std(axis=0, ddof=1), rtol=1e-6
        )
        counts = np.bincount([c for (c,) in group[0].query("SELECT client FROM clients")], minlength=12)
        assert [row["times"] for row in data["selections"] if row["strategy"] == label] == counts.tolist()
    counts = find_runs([group[0].path])[0].portrait.facts["counts"]
    assert sum(row["samples"] for row in data["class_counts"]) == counts.sum()
    assert {(row["client"], row["class"]) for row in data["class_counts"]} == {
        (str(i), str(c)) for i, c in np.argwhere(counts)
    }


def test_over_time_a_line_says_what_was_reached_by_then(whole: Page, by_label: dict[str, list[Run]]) -> None:
    drawn = [row for row in whole.payload["data"]["accuracy_time"] if row["strategy"] == "UCB"]
    for point in (drawn[0], drawn[len(drawn) // 2], drawn[-1]):
        reached = []
        for run in by_label["UCB"]:
            rows = run.query(
                f"SELECT test_accuracy FROM rounds WHERE simulated_time <= {point['x'] * (1 + 1e-6)} ORDER BY round"
            )
            reached.append(rows[-1][0])
        assert point["mean"] == pytest.approx(np.mean(reached), rel=1e-6)


def test_every_chart_is_valid_and_has_its_data(runs: Path) -> None:
    story = gather(find_runs([runs]))
    for look in (PAGE, paper(1)):
        keys = []
        for figure in figures(story, look):
            keys.append(figure.place)
            for view in figure.views:
                for panel in view.panels:
                    assert isinstance(panel.chart, alt.Chart | Layers)
                    panel.chart.to_dict()  # against the schema
        assert len(set(keys)) == len(keys) >= 16


def test_headlines_do_not_claim_more_than_the_seeds_tell(whole: Page, runs: Path) -> None:
    assert re.search(r"The difference is clear|The difference is not clear", whole.prose)
    first = [run.path for run in find_runs([runs]) if run.meta["seed"] == "0"]
    prose = made(*first).prose
    assert (
        "They share only one seed: it is not known whether the difference is due to chance. Run 7 seeds or more."
        in prose
    )
    assert "too few seeds" in prose


# --- whatever state the runs are in ------------------------------------------------------------------------------------------------


def test_a_run_without_a_round(tmp_path: Path, runs: Path) -> None:
    copy = tmp_path / "fresh"
    shutil.copytree(find_runs([runs])[0].path, copy)
    with sqlite3.connect(copy / "run.sqlite") as database:
        for table in SEALED:
            database.execute(f"DELETE FROM {table}")
        database.execute("UPDATE meta SET value = 'running' WHERE key = 'status'")
        seal_again(database)
    database.close()
    found = made(copy)
    assert "No round has been played yet" in found.prose
    assert "round 0 of 8" in found.prose
    assert "class_counts" in found.payload["data"]


def test_runs_that_are_going_on_stand_beside_finished_ones(tmp_path: Path, runs: Path) -> None:
    for run in find_runs([runs])[:4]:
        shutil.copytree(run.path, tmp_path / run.path.name)
    late = find_runs([tmp_path])[3]
    with sqlite3.connect(late.path / "run.sqlite") as database:
        for table in SEALED:
            database.execute(f"DELETE FROM {table} WHERE round > 3")
        database.execute("UPDATE meta SET value = 'running' WHERE key = 'status'")
        seal_again(database)
    database.close()
    found = made(tmp_path)
    assert "1 of 4 runs is not finished" in found.prose
    assert "round 3 of 8" in found.prose
    assert 'class="best"' not in found.text.split('id="results"')[1].split("</table>")[0], (
        "a run that has played fewer rounds has lower costs"
    )


def test_one_round_and_one_client(tmp_path: Path) -> None:
    for name, values in (
        ("round", {"rounds": 1}),
        ("client", {"federation": {"clients": 1}, "selection": {"k": 1}, "rounds": 2}),
    ):
        fedcohort.run(small(**values), runs=tmp_path / name)
        found = made(tmp_path / name)
        assert "1 Result" in found.prose
        assert found.cells["results"][0]["accuracy"]


def test_public_samples_and_what_is_ours_are_said(tmp_path: Path) -> None:
    """A hold-out is an advantage; SCAFFOLD with momentum is not its paper's."""
    public, rounds = {"name": "holdout", "share": 0.1}, {"rounds": 1}
    fedcohort.run(small(**rounds, public=public, algorithm="scaffold"), runs=tmp_path / "a")
    found = made(tmp_path / "a").prose
    assert (
        "Public samples holdout: a random 0.1 of the training samples, taken from the clients, labels discarded"
        in found
    )
    assert "an advantage over samples from elsewhere" in found
    assert "SCAFFOLD+momentum (ours): its source has no such local optimizer" in found
    fedcohort.run(small(**rounds, training={"momentum": 0.0}, algorithm="scaffold"), runs=tmp_path / "b")
    found = made(tmp_path / "b").prose
    assert "Public samples" not in found
    assert "(ours)" not in found


def test_an_old_run_without_a_portrait_shows_what_it_has(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=2), runs=tmp_path)
    with sqlite3.connect(run.path / "run.sqlite") as database:
        database.execute("DELETE FROM portrait")
        seal_again(database)
    database.close()
    found = made(tmp_path)
    assert "that were selected at least once" in found.prose


HOSTILE = [
    "<script>window.hurt=1</script>",
    "</script><img src=x onerror=window.hurt=1>",
    "\"'`{{7*7}}${7*7}&lt;",
    "long " * 100,
    "=cmd()",
]


def hostile(folder: Path) -> Any:
    """A comparison whose every name is an attack."""
    rng = np.random.default_rng(0)
    classes = [HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[3][:60]]
    labels = np.arange(400) % 4
    features = rng.normal(size=(400, 6)).astype(np.float32) + labels[:, None]
    data = fedcohort.from_arrays(
        (features[:300], labels[:300]), (features[300:], labels[300:]), classes=classes, name=HOSTILE[1]
    )
    rows = [{"label": name, "selection": {"name": "ucb", "initial_rounds": i}} for i, name in enumerate(HOSTILE)]
    values = {"rounds": 2, "seeds": 1, "variants": rows, "federation": {"clients": 4, "partition": {"name": "iid"}}}
    return fedcohort.compare(small(**{**values, "name": HOSTILE[0]}), data=data, runs=folder)


def test_hostile_names_stay_words(tmp_path: Path) -> None:
    hostile(tmp_path)
    found = made(tmp_path)
    scripts = [a for tag, a in found.tags if tag == "script"]
    assert len(scripts) == 3
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert "{{7*7}}" in found.prose
    assert "49" not in found.prose.split("{{7*7}}")[1][:30]
    assert "<script>window.hurt=1</script>" in found.prose
    assert max(len(row["strategy"]) for row in found.payload["data"]["accuracy_rounds"]) <= 32


# --- the command -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_takes_runs_folders_and_experiment_files(tmp_path: Path, runs: Path) -> None:
    def report(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["report", *arguments, "-o", str(tmp_path / "page.html")])

    one = find_runs([runs])[0].path
    for arguments in ([str(one)], [str(runs)], ["--runs", str(runs)]):
        result = report(*arguments)
        assert result.exit_code == 0, result.output
        assert "MB" in result.output
        assert (tmp_path / "page.html").stat().st_size < 6e6
    file = tmp_path / "experiment.toml"
    shutil.copy(one / "experiment.toml", file)
    assert report(str(file), "--runs", str(runs)).exit_code == 0
    wrong = {"nowhere": "no such run", str(tmp_path): "there is no run in it"}
    for path, words in wrong.items():
        result = report(path)
        assert result.exit_code == 2
        assert words in result.output
    assert "none of its runs" in report(str(file), "--runs", str(tmp_path / "none")).output
    result = CliRunner().invoke(cli, ["report", str(one), "-o", str(one / "run.sqlite" / "page.html")])
    assert result.exit_code == 2
    assert "--output" in result.output


def test_commands_in_messages_have_paths_with_spaces_in_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my runs").mkdir()
    Path("my file.toml").write_text("rounds = 1")
    with pytest.raises(UsageError, match=r"^my runs: .*`fedcohort run --runs 'my runs'` creates one$"):
        find_runs([Path("my runs")])
    with pytest.raises(UsageError, match=r"^my file\.toml: .*`fedcohort compare 'my file\.toml'`"):
        find_runs([Path("my file.toml")])
    with pytest.raises(UsageError, match=r"^my file\.toml: .*`fedcohort profile --json > 'my file\.toml'` makes one$"):
        Profile.load(Path("my file.toml"))


def test_the_same_run_twice_counts_once(runs: Path) -> None:
    one = find_runs([runs])[0].path
    assert len(find_runs([one, one])) == 1
    with pytest.raises(UsageError, match="there is no run"):
        find_runs([one / "checkpoint"])
    assert not math.isnan(gather(find_runs([one])).first[0].bytes[-1])


def test_whose_update_was_declined_is_told_apart_from_who_was_selected(tmp_path: Path) -> None:
    """Conformal participation selects everybody; the page says who entered the model, what clients reported, and the threshold."""
    row = {
        "name": "conformal",
        "max_epochs": 2,
        "schedule": "linear",
        "schedule_rounds": 3,
        "theta": 0.05,
        "theta_end": 0.25,
    }
    run = fedcohort.run(small(rounds=3, federation={"clients": 6, "holdout": 0.3}, selection=row), runs=tmp_path)
    found = made(tmp_path)
    used = run.query("SELECT client, SUM(status = 'admitted'), COUNT(*) FROM clients GROUP BY client ORDER BY client")
    drawn = found.payload["data"]["selections"]
    assert [(row["client"], row["used"], row["times"]) for row in drawn] == used
    assert any(admitted < times for _, admitted, times in used)
    shown = found.row("fairness", run.meta["label"])
    assert float(shown["jain"]) == 1
    assert float(shown["jain_model"]) == pytest.approx(measures.jain([admitted for _, admitted, _ in used]))
    reported = next(
        key for key in found.payload["data"] if key.startswith("reported_conformal") and key.endswith("_level")
    )
    assert [row["value"] for row in found.payload["data"][reported]] == pytest.approx([0.05, 0.15, 0.25])
    assert "Dashed line, for the quantile: the threshold" in found.prose
    assert "conformal quantile" in found.text
    assert (
        "A client that the strategy declines sends no update; the numbers that it reports count as bytes only."
        in found.prose
    )
    switch = [a for tag, a in found.tags if tag == "input" and str(a.get("name")).startswith("view-reported-conformal")]
    assert len(switch) == 4, "quantile, set size, done, epochs; the number of held-out samples never changes"


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.sqlite").touch()
    result = CliRunner().invoke(cli, ["report", str(tmp_path), "-o", str(tmp_path / "page.html")])
    assert result.exit_code == 2
    assert "the run's database is damaged, or it is not a database" in result.output


def test_words_of_a_forged_record_stay_words(tmp_path: Path) -> None:
    """A stranger can write anything into a record, with valid hashes: into every column of text, and into every fact."""
    run = fedcohort.run(small(rounds=2, selection={"name": "powd", "d": 5}), runs=tmp_path)
    attack = "</script><img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
    with sqlite3.connect(run.path / "run.sqlite") as database:
        columns = {"rounds": ("note",), "clients": ("detail",), "ledger": ("discloses",)}
        for table, names in columns.items():
            for name in names:
                database.execute(f"UPDATE {table} SET {name} = ?", (attack,))
        database.execute("UPDATE ledger SET kind = ? WHERE kind <> 'training'", (attack,))
        database.execute("UPDATE decisions SET terms = ?", (json.dumps({attack: 1.0, "other": 2.0}),))
        database.execute("UPDATE clients SET reports = ?", (json.dumps({attack: 1.0}),))
        kept = ("format", "status", "experiment", "model", "seed", "plug-ins", "plug-in files", "checkpoints")
        database.execute(f"UPDATE meta SET value = ? WHERE key NOT IN {kept}", (attack,))
        classes = zlib.compress(json.dumps([attack] * 10).encode())
        database.execute("UPDATE portrait SET data = ? WHERE name = 'classes'", (classes,))
        seal_again(database)
    database.close()
    for found in (made(tmp_path), Page(Live(tmp_path).page(None))):
        assert len([tag for tag, _ in found.tags if tag == "script"]) == 3
        assert not [tag for tag, _ in found.tags if tag == "img"]
        assert found.prose.count("window.hurt=1") > 3
