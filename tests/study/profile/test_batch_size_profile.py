"""Batch sizes measured: steps are counted and timed right, and the recommendations say why."""

import dataclasses
import functools
import json
import math
import mmap
import operator
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.core.words import formatted_values
from fedcohort.report import terminal
from fedcohort.report.charts.batch_sizes import profiles
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.paper_figures import composed, draw
from fedcohort.report.page import gallery
from fedcohort.selection import Cohort
from fedcohort.study.profile.batch_size_process import StepTimer, relative_precision
from fedcohort.study.profile.batch_size_profile import Order, Profile, Size, _in_a_fresh_process, profile, recommend
from fedcohort.study.profile.peak_memory import PeakMemory
from tests.experiments import small
from tests.run_states import a_run_state


def measured(batch_size: int, speed: float, memory: float, accuracy: float, precision: float = 0.01) -> Size:
    clients = [
        {
            "client": i,
            "samples": 40.0,
            "batch_seconds": 0.001,
            "batch_seconds_sd": 0.0,
            "samples_per_second": speed,
            "memory": memory - 1e6 * i,
            "accuracy": accuracy,
        }
        for i in range(3)
    ]
    return Size(
        batch_size,
        batch_size / speed,
        0.0,
        speed,
        precision,
        precision <= 0.05,
        5,
        memory,
        1e6,
        memory / 2,
        "resident",
        accuracy,
        accuracy,
        clients,
    )


SIZES = [
    measured(8, 1000, 100e6, 0.80),
    measured(16, 2000, 110e6, 0.79),
    measured(32, 2400, 150e6, 0.70),
    measured(64, 2500, 200e6, 0.50),
]


def test_both_rules_recommend_with_their_reason() -> None:
    """Scaled time per sample 1, 1/6, .028, 0; memory 0, .1, .5, 1; error 0, .033, .333, 1: the means are .333, .1, .287, .667."""
    throughput, tradeoff = recommend(SIZES)
    assert (throughput.rule, throughput.batch_size) == ("throughput", 64)
    assert "2,500 samples per second, 2.5 times as many as with 8" in throughput.reason
    assert (tradeoff.rule, tradeoff.batch_size) == ("tradeoff", 16)
    assert "500 µs per sample, 110 MB, 79.0% accuracy" in tradeoff.reason


def test_a_recommendation_says_that_another_size_is_more_accurate() -> None:
    throughput, tradeoff = recommend(SIZES)
    assert throughput.reason.endswith("; 8 has a higher test accuracy, 80.0% in place of 50.0%")
    assert "higher" not in tradeoff.reason, "79% and 80% are the same"
    assert "higher" not in recommend([dataclasses.replace(one, accuracy=math.nan) for one in SIZES])[0].reason
    same = Profile("x", 3, SIZES, [throughput, dataclasses.replace(tradeoff, batch_size=64)])
    assert same.advice[0] == "Recommended batch size: 64 by throughput and by trade-off."
    assert [line.partition(":")[0] for line in same.advice[1:]] == ["Throughput", "Trade-off"]


def test_what_the_noise_leaves_open_is_said() -> None:
    noisy = [dataclasses.replace(SIZES[2], precision=0.05), dataclasses.replace(SIZES[3], precision=0.05), SIZES[0]]
    assert "the difference to 32 is not clear" in recommend(noisy)[0].reason
    assert "told apart" not in recommend(SIZES)[0].reason


def test_without_rounds_there_is_no_trade_off() -> None:
    blind = [dataclasses.replace(one, accuracy=math.nan) for one in SIZES]
    assert [one.rule for one in recommend(blind)] == ["throughput"]


def test_sizes_above_the_data_of_all_clients_are_not_recommended() -> None:
    """The fastest size was recommended, although no client has so many samples."""
    known = [dataclasses.replace(one, largest_client=40) for one in SIZES]
    assert {one.batch_size for one in recommend(known)} <= {8, 16, 32}
    some = Profile("x", 3, known, recommend(known))
    assert some.warnings[0].startswith(
        "No client has as many training samples as batch size 64: the largest has 40 training samples."
    )
    assert " 64" not in " ".join(some.advice)
    none = Profile("x", 3, known[3:], recommend(known[3:]))
    first = "No recommendation: the largest client has 40 training samples. Give smaller batch sizes with --batch-size."
    assert none.advice == [first]
    assert first in " ".join(terminal.as_text(terminal.profile(none)).split())
    assert "No recommendation" in gallery("Batch sizes", "x", none.advice, profiles(none, PAGE), warnings=none.warnings)
    assert not Profile("x", 3, SIZES, recommend(SIZES)).warnings, "saved before the largest client was measured"


def test_every_step_is_timed_once() -> None:
    with a_run_state(training={"batch_size": 16}, engine={"plan": "loop", "workers": 1}) as run_state:
        plain = {
            update.client: update
            for update in run_state.engine.train(run_state.model, 1, Cohort(np.arange(12)), run_state.algorithm)
        }
        watch = StepTimer(run_state.algorithm)
        with watch:
            for watch.client in range(12):
                (update,) = run_state.engine.train(
                    run_state.model, 1, Cohort(np.array([watch.client])), run_state.algorithm
                )
                for name, value in plain[watch.client].state.items():
                    assert (update.state[name] == value).all(), "watching changes nothing"
        assert "backward" not in vars(run_state.algorithm)
        for client, samples in enumerate(run_state.clock.num_samples.tolist()):
            steps = [step for step in watch.steps if step.client == client]
            assert len(steps) == math.ceil(samples / 16)
            assert sum(step.samples for step in steps) == samples
            assert all(step.seconds > 0 for step in steps)


def test_the_interval_is_students() -> None:
    """Seconds a sample .010, .011, .012: mean .011, sd .001, half-width 4.302653·.001/√3 = .002484, a share of .225828."""
    assert relative_precision([(1.0, 100), (1.1, 100), (1.2, 100)]) == pytest.approx(0.225828, abs=1e-5)
    assert relative_precision([(1.0, 100)]) == math.inf


@pytest.mark.slow
def test_a_size_is_measured_in_a_process_of_its_own() -> None:
    found = profile(small(training={"epochs": 2}), sizes=[32], rounds=1, seconds=0.5, precision=0.5)
    (one,) = found.sizes
    assert one.batch_size == 32
    assert one.largest_client == max(row["samples"] for row in one.clients) > 0, "not once for each epoch"
    assert one.where == "resident"
    assert 0 < one.memory_before <= one.memory < 8e9
    assert one.memory == max(row["memory"] for row in one.clients)
    assert 0 <= one.memory_sd < one.memory
    assert one.samples_per_second > 100
    assert one.passes >= 2
    assert 0 <= one.accuracy <= 1
    assert [row["client"] for row in one.clients] == list(range(12))
    assert all(row["samples"] > 0 and row["batch_seconds"] > 0 for row in one.clients)


def test_a_client_has_a_peak_of_its_own() -> None:
    """Fifty million bytes that are touched and given back are in one peak, and where the kernel can forget not in the next."""
    memory = PeakMemory("cpu")
    memory.reset()
    before = memory.peak()
    with mmap.mmap(-1, 50_000_000) as block:  # fresh pages, whatever the process has in store
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1
        high = memory.peak()
    assert high - before > 45e6
    memory.reset()
    assert memory.where == "resident"
    if Path("/proc/self/clear_refs").exists():
        assert memory.peak() < high - 40e6


def test_the_peak_on_windows_and_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no module resource, and both have no /proc."""

    def missing(path: Path, **_: Any) -> str:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "read_text", missing)
    if sys.platform != "win32":
        assert PeakMemory("cpu").peak() > 20e6
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=1, peak_wset=2))
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(Process=lambda: process))
    assert PeakMemory("cpu").peak() == 2.0


@pytest.mark.slow
def test_messages_of_the_measuring_process_do_not_depend_on_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    toml = small().to_toml().replace("digits", "vérité")
    with pytest.raises(UsageError, match="vérité"):
        _in_a_fresh_process(Order(toml, 32, 0, 0.1, 0.1, None))


class Cuda:
    """What the measuring asks of ``torch.cuda``, and in which order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.highest = 0

    def memory_allocated(self, device: str) -> int:
        return 1_000

    def reset_peak_memory_stats(self, device: str) -> None:
        self.asked.append("reset")
        self.highest = 1_000

    def max_memory_allocated(self, device: str) -> int:
        self.asked.append("peak")
        return self.highest

    def synchronize(self, device: str) -> None:
        self.asked.append("wait")
        self.highest += 500


def test_on_a_gpu_memory_is_the_devices_and_the_clock_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub of ``torch.cuda``: the peak is forgotten before a client, read after it, and every stamp is taken by a GPU at rest."""
    cuda = Cuda()
    monkeypatch.setattr("fedcohort.study.profile.peak_memory._cuda", lambda: cuda)
    memory = PeakMemory("cuda")
    assert memory.where == "device"
    assert memory.now() == 1_000
    with a_run_state(training={"batch_size": 16}, engine={"plan": "loop", "workers": 1}) as run_state:
        watch = StepTimer(run_state.algorithm, memory.wait)
        with watch:
            watch.client = 0
            memory.reset()
            list(run_state.engine.train(run_state.model, 1, Cohort(np.array([0])), run_state.algorithm))
            peak = memory.peak()
    steps = len(watch.steps)
    assert steps > 1
    assert cuda.asked == ["reset", *["wait"] * (steps + 1), "peak"]
    assert peak == 1_000 + 500 * (steps + 1)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sizes": [0]}, "--batch-size 0"),
    ({"sizes": [8, 8]}, "--batch-size 8, 8"),
    ({"rounds": -1}, "rounds = -1"),
    ({"precision": 1.5}, "precision = 1.5"),
]


@pytest.mark.parametrize(("values", "words"), WRONG)
def test_settings_that_cannot_be(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        profile(small(), **values)


def test_the_command_shows_a_table_json_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Profile("quickstart", 3, SIZES, recommend(SIZES))
    monkeypatch.setattr("fedcohort.study.profile.batch_size_profile.profile", lambda *_, **__: found)
    page = tmp_path / "profile.html"
    result = CliRunner().invoke(cli, ["profile", "-o", str(page)])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "Recommended batch size: 64 by throughput, or 16 by trade-off." in text
    assert text.index("Recommended") < text.index("samples per second") < text.index("2,500 ± 1%")
    deviations = "± is the standard deviation of single mini-batches; of samples per second, half the 95% interval of the mean, as a "
    deviations += "share of it"
    assert f"{deviations}; over clients, the standard deviation of their peak memory." in text
    narrow = " ".join(terminal.as_text(terminal.profile(found, 50), 50).split())
    assert "± over clients" in narrow.partition("Hidden for lack of width")[2]
    assert f"{deviations}. Memory" in narrow
    assert "After 3 rounds with each batch size, one seed, and the same learning rate: more rounds" in text
    assert page.read_text().index(
        "Recommended batch size: 64 by throughput, or 16 by trade-off."
    ) < page.read_text().index("<figure")
    assert "2,500 ± 1%" in result.output
    assert page.read_text().count('class="chart"') >= 6
    told = json.loads(CliRunner().invoke(cli, ["profile", "--json"]).output)
    assert [one["batch_size"] for one in told["sizes"]] == [8, 16, 32, 64]
    loose = Profile("quickstart", 3, [dataclasses.replace(SIZES[0], precision=0.2, tight=False)], recommend(SIZES))
    assert "± of the samples per second is more than --precision: batch size 8." in terminal.as_text(
        terminal.profile(loose)
    )
    unplayed = terminal.as_text(terminal.profile(dataclasses.replace(loose, rounds=0)))
    assert "of clients" in terminal.as_text(terminal.profile(loose))
    assert "of clients" not in unplayed, "without rounds, columns of accuracies had no number"
    both = dataclasses.replace(loose, sizes=[dataclasses.replace(size, tight=False) for size in SIZES[:2]])
    assert both.warnings[0].startswith(
        "± of the samples per second is more than --precision: batch sizes 8, 16. Increase"
    )


def test_its_charts_can_be_drawn() -> None:
    found = Profile("quickstart", 3, SIZES, recommend(SIZES))
    look = paper()
    drawn = [draw(composed(figure, view, look), "svg") for figure in profiles(found, look) for view in figure.views]
    assert len(drawn) >= 8
    assert all(b"<path" in svg for svg in drawn)
    memory = next(figure for figure in profiles(found, look) if figure.key == "memory")
    first = memory.data["profile"].iloc[0]
    assert (first["memory_mean"], first["least"], first["most"], first["grown"]) == (99, 98, 100, 49)
    assert "Batch sizes" in gallery("Batch sizes", "x", [], profiles(found, PAGE))
    time = next(figure for figure in profiles(found, look) if figure.key == "batch-time")
    assert time.note == "Lines: ± one standard deviation of single mini-batches."
    uneven = [dataclasses.replace(SIZES[0], batch_seconds_sd=2 * SIZES[0].batch_seconds), *SIZES[1:]]
    time = next(
        figure for figure in profiles(dataclasses.replace(found, sizes=uneven), look) if figure.key == "batch-time"
    )
    assert time.note == "Lines: ± one standard deviation of single mini-batches, at least 0."
    assert time.data["profile"]["low"].min() == 0


def test_cells_of_a_few_clients_contain_their_numbers() -> None:
    """The shades of the cells have no legend, and begin at the lowest value."""
    found = Profile("quickstart", 3, SIZES, recommend(SIZES))
    for look, numbered in ((PAGE, True), (paper(), False)):
        (single,) = [figure for figure in profiles(found, look) if figure.key == "profile-clients"]
        text = json.dumps(single.views[0].panels[0].chart.to_dict(validate=False))
        assert ('"type": "text"' in text) == numbered
    many = [dataclasses.replace(one, clients=[one.clients[0] | {"client": i} for i in range(40)]) for one in SIZES]
    (single,) = [
        figure for figure in profiles(Profile("x", 3, many, recommend(SIZES)), PAGE) if figure.key == "profile-clients"
    ]
    assert '"type": "text"' not in json.dumps(single.views[0].panels[0].chart.to_dict(validate=False))


def test_a_profile_that_was_written_is_drawn_for_papers(tmp_path: Path) -> None:
    blind = dataclasses.replace(SIZES[0], accuracy=math.nan, precision=math.inf)
    found = Profile("quickstart", 3, [blind, *SIZES[1:]], recommend(SIZES))
    file = tmp_path / "profile.json"
    file.write_text(formatted_values.as_json(found.to_json()), encoding="utf-8")
    again = Profile.load(file)
    assert math.isnan(again.sizes[0].accuracy)
    assert again.sizes[1:] == found.sizes[1:]
    assert again.recommendations == found.recommendations
    folder = tmp_path / "figures"
    wanted = ["--only", "batch-time", "--only", "memory", "--format", "svg", "--out", str(folder)]
    result = CliRunner().invoke(cli, ["figures", str(file), *wanted])
    assert result.exit_code == 0, result.output
    assert sorted(one.name for one in folder.iterdir()) == [
        "batch-time.svg",
        "captions.txt",
        "memory-of-training.svg",
        "memory-whole.svg",
    ]
    file.write_text("[" * 9999, encoding="utf-8")
    with pytest.raises(UsageError, match="not a profile"):
        Profile.load(file)
    file.write_text('{"sizes": []}', encoding="utf-8")
    for arguments, message in (([str(file)], "not a profile"), ([str(file), "other.json"], "one profile at a time")):
        result = CliRunner().invoke(cli, ["figures", *arguments])
        assert result.exit_code == 2
        assert message in result.output


@pytest.mark.parametrize("value", ["x", -1, 0, math.inf, [], {}, True, None, "deleted"])
def test_a_profile_with_other_values_is_drawn_or_refused_in_one_line(value: Any, tmp_path: Path) -> None:
    """Every place of a profile gets each of these values in turn."""
    whole = json.loads(formatted_values.as_json(Profile("quickstart", 3, SIZES[:1], recommend(SIZES)).to_json()))
    refused = []
    for place in [(key,) for key in whole] + [
        ("sizes", 0, *rest)
        for rest in (
            [(key,) for key in whole["sizes"][0]] + [("clients", 0, key) for key in whole["sizes"][0]["clients"][0]]
        )
    ]:
        changed = json.loads(json.dumps(whole))
        part = functools.reduce(operator.getitem, place[:-1], changed)
        if value == "deleted":
            del part[place[-1]]
        else:
            part[place[-1]] = value
        (tmp_path / "profile.json").write_text(json.dumps(changed), encoding="utf-8")
        try:
            profiles(Profile.load(tmp_path / "profile.json"), PAGE)
        except UsageError:
            refused.append(place)
    assert ("sizes",) in refused


def test_profiles_say_the_name_of_the_score(tmp_path: Path) -> None:
    sizes = [dataclasses.replace(size, accuracy=size.accuracy - 1) for size in SIZES]
    found = Profile("numbers", 1, sizes, recommend(sizes, "numbers"), "numbers")
    text = terminal.as_text(terminal.profile(found))
    assert "accuracy" not in text.lower()
    assert "R² is on the test set. The score of a client is 1 − its mean squared error / variance of labels." in text
    assert "memory and 1 − R²" in text
    titles = [figure.title for figure in profiles(found, PAGE)]
    assert "R²" in titles
    assert "Accuracy" not in titles
    file = tmp_path / "profile.json"
    file.write_text(formatted_values.as_json(found.to_json()), encoding="utf-8")
    assert Profile.load(file).labels == "numbers"
