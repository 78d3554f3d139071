"""The data owner's process: its file, its data, its socket, and what survives a restart."""

import errno
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from flwr.app import Context, RecordDict

from fedcohort.cli.entry import cli
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.flower.new_app import new_app
from fedcohort.flower.sites import serve
from fedcohort.flower.sites.answer_log import budget_words
from fedcohort.flower.sites.courier import call_site, receive, send
from fedcohort.flower.sites.memory_versions import KEPT, MemoryVersions
from fedcohort.flower.sites.owner_policy import Budget, Refused, Spent
from fedcohort.flower.sites.protocol import BadMessage, Words, packed
from fedcohort.flower.sites.serve import (
    alone,
    check_files,
    check_security,
    end_group,
    is_loopback,
    listening,
    serve_site,
    supernode_command,
)
from fedcohort.flower.sites.site import Site
from fedcohort.flower.sites.site_file import SiteFile, SuperLink, installed_plugins, open_site, read_site_file
from tests.docs.pages import ROOT, blocks

HELLO = packed({"kind": "hello", "classes": 3})


def owner(folder: Path, text: str = "", **arrays: np.ndarray) -> Path:
    """A site file with the owner's own data."""
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        "features": rng.normal(size=(20, 4)).astype(np.float32),
        "labels": np.arange(20) % 3,
    } | arrays
    for name, values in given.items():
        np.save(folder / f"{name}.npy", values)
    path = folder / "site.toml"
    path.write_text(
        f'name = "clinic"\n{text}\n[data]\nfeatures = "features.npy"\nlabels = "labels.npy"\nheld_out = 0.25\n'
    )
    return path


def test_a_site_with_the_owners_data_introduces_itself(tmp_path: Path) -> None:
    site = open_site(owner(tmp_path, "[allow]\nhistogram = true\nquestions = ['LocalLoss']\nreports = ['loss']"))
    said = unpack(site.handle(HELLO))
    assert (said["name"], said["questions"], said["reports"]) == ("clinic", ["LocalLoss"], ["loss"])
    [client] = said["clients"]
    assert (client["name"], client["num_samples"], client["held_out"], sum(client["histogram"])) == (
        "clinic",
        15,
        5,
        15,
    )


def test_a_site_has_its_own_numbers_of_threads(tmp_path: Path) -> None:
    site = open_site(owner(tmp_path, "workers = 3\nthreads_per_client = 4"))
    assert (site.workers, site.threads_per_client) == (3, 4)
    with pytest.raises(UsageError, match="threads_per_client = 0"):
        read_site_file(owner(tmp_path, "threads_per_client = 0"))


def test_by_default_nothing_but_training_is_allowed(tmp_path: Path) -> None:
    said = unpack(open_site(owner(tmp_path)).handle(HELLO))
    assert (said["training"], said["questions"], said["reports"], said["clients"][0]["histogram"]) == (
        True,
        [],
        [],
        None,
    )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.arange(19)}, "data.labels: int64 .19. for 20 samples"),
        (
            {"labels": np.full(20, -1)},
            "data.labels: 20 of 20 are negative, the first is -1; must be one integer from 0 for each",
        ),
        (
            {"labels": np.arange(20) * -7 + 20},
            "data.labels: 17 of 20 are negative, the first is -1; must be one integer",
        ),
        ({"labels": np.zeros(20)}, "data.labels: float64"),
        ({"features": np.full((20, 4), np.nan)}, "data.features: has NaN"),
        ({"features": np.full((20, 4), 1e39)}, "data.features: has .* numbers that float32 cannot hold"),
        ({"features": np.zeros((20, 4), np.uint8)}, "data.features: uint8 .20, 4.; must be floats, or uint8 images"),
        ({"features": np.array([{}] * 20)}, "data.features = 'features.npy': cannot be read"),
        ({"features": np.zeros((0, 4)), "labels": np.zeros(0, np.int64)}, "data.features: has no samples"),
        ({"labels": np.full(20, 2**63, np.uint64)}, "data.labels: has 9223372036854775808; must be classes"),
    ],
)
def test_data_that_cannot_be_used_are_refused(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        open_site(owner(tmp_path, "", **arrays))


def test_images_keep_their_bytes(tmp_path: Path) -> None:
    images = np.arange(20 * 16, dtype=np.uint8).reshape(20, 1, 4, 4)
    [data] = open_site(owner(tmp_path, "", features=images)).clients.values()
    both = np.concatenate([data.training.features.numpy(), data.held_out.features.numpy()])
    assert both.dtype == np.uint8
    np.testing.assert_array_equal(both, images)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nam = 'x'", "nam"),
        (
            "[allow]\nquestions = ['LocalLos']",
            "allow.questions = 'LocalLos': there is no such question; did you mean 'LocalLoss'",
        ),
        (
            "[allow]\nreports = ['losss']",
            "allow.reports = 'losss': there is no such report; did you mean 'loss'",
        ),
        ("[budget]\nrounds = -1", "budget.rounds"),
        ("[budget]\nepochs = 0.5", "budget.epochs"),
        ("x = = 1", "cannot be read"),
    ],
)
def test_a_site_file_that_cannot_be_used_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        open_site(owner(tmp_path, text))
    with pytest.raises(UsageError, match=r"missing\.toml: there is no such file; give the path of a site\.toml"):
        read_site_file(tmp_path / "missing.toml")


def test_a_file_that_is_sorted_by_class_is_not_split(tmp_path: Path) -> None:
    """The last quarter is held out: of 100 samples, all 25 are of class 1, which a shuffled file has with probability 5e-10."""
    features, labels = np.zeros((100, 4), np.float32), np.repeat([0, 1], 50)
    message = (
        r"data.held_out = 0.25: the last 25 of 100 samples are held out, and have 0 of the 50 samples of class 0; shuffle features "
        "and labels together: the file seems to be sorted by class"
    )
    with pytest.raises(UsageError, match=message):
        open_site(owner(tmp_path, features=features, labels=labels))
    shuffled = np.random.default_rng(0).permutation(labels)
    assert len(open_site(owner(tmp_path, features=features, labels=shuffled)).clients["clinic"].held_out) == 25


def test_the_end_of_a_file_that_differs_from_the_rest_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """45 of the last 50 samples are of class 1, and half of the first 150: a shuffled file has this with probability 1.3e-7."""
    labels = np.concatenate([np.arange(150) % 2, np.arange(50) % 10 > 0]).astype(np.int64)
    site = open_site(owner(tmp_path, features=np.zeros((200, 4), np.float32), labels=labels))
    assert len(site.clients["clinic"].held_out) == 50
    [line] = caplog.messages
    assert (
        "data.held_out = 0.25: the last 50 of 200 samples are held out, and have 5 of the 80 samples of class 0" in line
    )
    assert "shuffle features and labels together, unless the end of the file is meant to differ" in line


def test_reports_of_rules_of_ones_own_can_be_allowed(tmp_path: Path) -> None:
    site = open_site(owner(tmp_path, "[allow]\nreports = ['loss', 'gain']"))
    assert unpack(site.handle(HELLO))["reports"] == ["gain", "loss"]


def test_names_and_data_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    path = owner(tmp_path)
    text = path.read_text()
    path.write_text(text.replace('"clinic"', '"a\\nb"'))
    with pytest.raises(UsageError, match=r"name = 'a\\nb': has characters that cannot be printed"):
        open_site(path)
    path.write_text(text.replace('"clinic"', '" St.  Mary"'))
    with pytest.raises(UsageError, match=r"has spaces at an end, or several in a row; give 'St\. Mary'"):
        open_site(path)
    path.write_text(f'{text}experiment = "x.toml"\n')
    with pytest.raises(UsageError, match=r"data.experiment: is for a trial without data of your own"):
        open_site(path)


@pytest.mark.parametrize("place", [3, 19])
def test_labels_that_the_server_does_not_know_are_refused_on_first_contact(place: int, tmp_path: Path) -> None:
    """Also one of a sample that is held out, the last quarter of the file."""
    site = open_site(owner(tmp_path, labels=np.where(np.arange(20) == place, 3, np.arange(20) % 3)))
    said = unpack(site.handle(HELLO))
    assert said["refused"] == "the server has the classes 0 to 2, and client 'clinic' has the label 3"


@pytest.mark.parametrize("classes", [2**23 + 1, 2**52])
def test_a_server_with_more_classes_than_can_be_counted_is_refused(classes: int, tmp_path: Path) -> None:
    """The counts would take the memory of the owner's machine. A site that sends no counts needs none."""
    request = packed({"kind": "hello", "classes": classes})
    said = unpack(open_site(owner(tmp_path, "[allow]\nhistogram = true")).handle(request))
    assert said["refused"] == f"the server has {classes:,} classes; this site counts at most 8,388,608 for each client"
    assert "refused" not in unpack(open_site(owner(tmp_path)).handle(request))


def test_tls_and_a_key_are_required_except_on_this_machine(tmp_path: Path) -> None:
    remote = SiteFile(superlink=SuperLink(address="fl.example.org:8000"))
    with pytest.raises(
        UsageError, match=r"superlink.root_certificates = '': there is no such file; TLS and a key are required"
    ):
        check_security(remote, tmp_path, insecure=False)
    with pytest.raises(UsageError, match="--insecure: only for a server on this machine"):
        check_security(remote, tmp_path, insecure=True)
    check_security(SiteFile(), tmp_path, insecure=True)
    for name in ("ca.crt", "key"):
        (tmp_path / name).write_text("x")
    (tmp_path / "key").chmod(0o644)
    secured = SiteFile(
        superlink=SuperLink(address="fl.example.org:8000", root_certificates="ca.crt", private_key="key")
    )
    with pytest.raises(UsageError, match="others can read it"):
        check_security(secured, tmp_path, insecure=False)
    (tmp_path / "key").chmod(0o600)
    check_security(secured, tmp_path, insecure=False)
    command = supernode_command(secured, tmp_path, tmp_path / "s", insecure=False)
    assert "--insecure" not in command
    assert command[command.index("--auth-supernode-private-key") + 1] == str(tmp_path / "key")
    assert "--insecure" in supernode_command(SiteFile(), tmp_path, tmp_path / "s", insecure=True)
    assert [is_loopback(each) for each in ("localhost:1", "[::1]:1", "127.0.0.1.example.org:1", ":1")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_site_runs_no_files_that_a_server_names() -> None:
    sections = {"model": {"name": "x.py:Model"}, "algorithm": {"name": "fedavg"}, "training": {}}
    with pytest.raises(UsageError, match="a site runs no files that a server names"):
        installed_plugins(Words({"sections": sections}, "setup"))
    with pytest.raises(UsageError, match="no such model"):
        installed_plugins(Words({"sections": sections | {"model": {"name": "mlpp"}}}, "setup"))
    own_loss = {"model": {"name": "mlp"}, "training": {"loss": {"name": "x.py:Loss"}}}
    with pytest.raises(UsageError, match=r"training.loss.name = 'x.py:Loss': a site runs no files that a server names"):
        installed_plugins(Words({"sections": sections | own_loss}, "setup"))


def test_two_processes_cannot_spend_the_same_budget(tmp_path: Path) -> None:
    path = owner(tmp_path)
    with alone(tmp_path / "state"), pytest.raises(UsageError, match="another `fedcohort site serve` uses this folder"):
        serve_site(path, insecure=True)
    with alone(tmp_path / "state"):
        pass


@pytest.mark.skipif(os.name != "posix", reason="permissions of files")
def test_only_the_owner_can_read_what_a_site_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, left = owner(tmp_path), tmp_path / "state" / "memories" / "run" / ".v0.safetensors.12-34.0"

    def served(_file: SiteFile, _folder: Path, site: Site, *, insecure: bool) -> int:
        site.memories.put("run", "clinic", "v1", "", {})
        site.spent.send(1)
        return int(not insecure)

    monkeypatch.setattr(serve, "_serve", served)
    assert serve_site(path, insecure=True) == 0
    kept = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert len(kept) > 5
    assert [str(each) for each in kept if each.stat().st_mode & 0o077] == []
    left.write_bytes(b"half")  # a process was killed while it wrote
    (tmp_path / "state").chmod(0o755)
    assert caplog.text == ""
    assert serve_site(path, insecure=True) == 0
    assert "other users of this machine can open it; run chmod -R go= on it" in caplog.text
    assert not left.exists()
    assert len([tmp_path / "state", *(tmp_path / "state").rglob("*")]) == len(kept)


def context(path: Path | str) -> Context:
    return Context(1, 1, {"site": str(path)}, RecordDict(), {})


@pytest.fixture
def short(tmp_path: Path) -> Any:
    """A short path, as sockets need."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder) / "site"


def test_the_courier_carries_requests_to_the_socket_of_the_owner(short: Path, tmp_path: Path) -> None:
    site = open_site(owner(tmp_path))
    with listening(site, short):
        assert short.stat().st_mode & 0o077 == 0
        assert call_site(context(short), HELLO) == site.handle(HELLO)
        assert "refused" in unpack(call_site(context(short), b"\x80\x04nonsense"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as rude:
            rude.connect(str(short))
            rude.sendall(b"\xff" * 8)  # announces more than is read
            assert rude.recv(1) == b""
        assert call_site(context(short), HELLO) == site.handle(HELLO)  # it still answers
    with pytest.raises(RuntimeError, match="the owner's process does not listen"):
        call_site(context(short), HELLO)
    with pytest.raises(RuntimeError, match="the SuperNode has no --node-config"):
        call_site(context(""), HELLO)


@pytest.mark.parametrize("lacks", ["files", "threads"])
def test_a_site_answers_again_when_there_is_room_for_requests(
    lacks: str, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Otherwise its SuperNode stays connected, and requests wait for a day."""
    site, accepts, starts = open_site(owner(tmp_path)), socket.socket.accept, threading.Thread.start
    failures = [OSError(errno.EMFILE, "Too many open files") if lacks == "files" else RuntimeError("no new thread")]

    def fails_once(call: Callable[..., Any], *given: Any) -> Any:
        if failures:
            raise failures.pop()
        return call(*given)

    monkeypatch.setattr(serve, "PAUSE", 0.01)
    if lacks == "files":
        monkeypatch.setattr(socket.socket, "accept", lambda *given: fails_once(accepts, *given))
    with listening(site, short):
        if lacks == "threads":
            monkeypatch.setattr(threading.Thread, "start", lambda *given: fails_once(starts, *given))
            with pytest.raises(ConnectionError):
                call_site(context(short), HELLO)
        assert call_site(context(short), HELLO) == site.handle(HELLO)
    assert [line for line in caplog.messages if "not accepted" in line] == [
        "a request was not accepted: " + ("[Errno 24] Too many open files" if lacks == "files" else "no new thread")
    ]


def test_a_message_that_ends_early_is_an_error() -> None:
    one, two = socket.socketpair()
    with one, two:
        send(one, b"x" * 100)
        assert receive(two) == b"x" * 100
        one.sendall(b"\x05\0\0\0\0\0\0\0abc")
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="in the middle of a message"):
            receive(two)


def test_a_restart_does_not_renew_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "spent.json"
    spent = Spent(Budget(rounds=1, bytes=100), path)
    spent.train("run", 1, "model", {"a": "work"}, 5)
    spent.send(60)
    again = Spent(Budget(rounds=1, bytes=100, epochs=7), path)
    again.train("run", 1, "model", {"a": "work"}, 2)  # the same round
    assert again.left() == {"rounds": 0, "answers": None, "bytes": 40, "epochs": 0}
    for refused in (
        lambda: again.train("run", 2, "model", {"a": "work"}),
        lambda: again.train("other", 1, "model", {"a": "work"}),
        lambda: again.send(41),
    ):
        with pytest.raises(Refused):
            refused()
    path.write_text('{"rounds": 1, "answers": 2, "bytes": 3, "last_round": "run/1"}')  # of an earlier version
    assert Spent(Budget(rounds=5, epochs=5), path).left() == {"rounds": 4, "answers": None, "bytes": None, "epochs": 5}
    for damaged in ("{", '{"rounds": 1e400, "answers": 0, "bytes": 0, "last_round": ""}', "[]"):
        path.write_text(damaged)
        with pytest.raises(UsageError, match="what the site has spent cannot be read"):
            Spent(Budget(), path)


def test_only_the_same_work_again_is_free() -> None:
    """The clients of a round can be in several requests; another model, or other work for a client, is a further round."""
    spent = Spent(Budget(rounds=3))
    for begins_with, work, left in (
        ("model", {"a": "1 epoch"}, 2),
        ("model", {"b": "1 epoch"}, 2),
        ("model", {"a": "1 epoch", "b": "1 epoch"}, 2),
        ("model", {"a": "2 epochs"}, 1),
        ("another model", {"a": "2 epochs"}, 0),
        ("another model", {"a": "2 epochs"}, 0),
    ):
        spent.train("run", 1, begins_with, work)
        assert spent.left()["rounds"] == left
    assert budget_words(spent.left()) == "left of the budget: rounds 0"
    assert budget_words(Spent(Budget()).left()) == "no budget is set"
    with pytest.raises(Refused, match="the site's budget of 3 rounds is used up"):
        spent.train("run", 1, "model", {"a": "1 epoch"})


@pytest.mark.parametrize("folder", [None, "memories"])
def test_memories_are_kept_in_versions(folder: str | None, tmp_path: Path) -> None:
    import torch

    def memory(x: float) -> dict[str, dict[str, torch.Tensor]]:
        return {"c": {"w": torch.full((2,), x)}}

    def opened() -> MemoryVersions:
        return MemoryVersions(None if folder is None else tmp_path / folder)

    memories = opened()
    assert memories.get("run", "a", "") == {}
    for i in range(KEPT + 3):
        memories.put("run", "a", f"v{i}", "v1", memory(i))
    memories.put("run", "b", "v0", "", memory(9))
    later = memories if folder is None else opened()
    assert pack(later.get("run", "a", "v1") or {}) == pack(memory(1))  # the one that the last training began with
    assert later.get("run", "a", "v2") is None
    assert pack(later.get("run", "a", f"v{KEPT + 2}") or {}) == pack(memory(KEPT + 2))
    assert pack(later.get("run", "b", "v0") or {}) == pack(memory(9))
    assert later.get("other", "a", "v1") is None
    later.put("run", "a", f"v{KEPT - 1}", "v1", memory(-1))  # one that is there becomes the newest
    for i in range(KEPT + 3, 2 * KEPT + 2):
        later.put("run", "a", f"v{i}", "v1", memory(i))
    assert pack(later.get("run", "a", f"v{KEPT - 1}") or {}) == pack(memory(-1))
    for run, version in (("../x", "v1"), ("run", "../../x"), ("run", "a/b")):
        with pytest.raises(BadMessage, match="is no name of a run or a memory"):
            later.get(run, "a", version)


def test_new_memories_are_kept_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """The files that are there have times of the future."""
    import torch

    memories = MemoryVersions(tmp_path)
    for i in range(KEPT):
        memories.put("run", "a", f"v{i}", "", {"c": {"w": torch.tensor([i])}})
        [written] = tmp_path.glob(f"run/*/v{i}.safetensors")
        later = written.stat().st_mtime_ns + 3_600_000_000_000
        os.utime(written, ns=(later, later))
    for i in range(KEPT, 2 * KEPT):
        memories.put("run", "a", f"v{i}", f"v{i - 1}", {"c": {"w": torch.tensor([i])}})
        kept = {f"v{j}.safetensors" for j in range(i + 1 - KEPT, i + 1)}
        assert {path.name for path in tmp_path.glob("run/*/*")} == kept


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "delete"}, "kind = 'delete': valid are hello, ask and train"),
        ({"kind": "ask", "question": {"kind": "YourData"}}, "there is no question"),
        ({"kind": "ask", "question": {"kind": "LocalLoss", "more": 1}}, "there is no question"),
        ({"kind": "ask", "question": {"kind": "LocalLoss"}}, "the owner does not allow LocalLoss"),
        ({"kind": "train"}, "message.run is not a text"),
        ({"kind": "hello"}, "message.classes is not a number"),
    ],
)
def test_a_request_that_cannot_be_used_is_refused(change: dict[str, object], reason: str, tmp_path: Path) -> None:
    assert reason in unpack(open_site(owner(tmp_path)).handle(packed(change)))["refused"]


def test_a_new_app_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "my lab 2"
    result = CliRunner().invoke(cli, ["deploy", "new", str(folder), "--sites", "2", "--address", "fl.example.org:9000"])
    assert result.exit_code == 0, result.output
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names >= {"pyproject.toml", "README.md", "make-keys.sh", "site-1.toml", "site-2.toml", "LICENSE"}
    assert names >= {f"my_lab_2_app/{name}" for name in ("server.py", "client.py", "experiment.toml", "__init__.py")}
    assert not any("$" in (folder / name).read_text() for name in names if name.endswith(("toml", ".py")))
    first, second = (read_site_file(folder / f"site-{i}.toml") for i in (1, 2))
    assert first.superlink.address == "fl.example.org:9000"
    assert first.data.clients + second.data.clients == tuple(range(8))
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.config import get_fab_config

    bundle = build_fab_from_disk(folder)
    assert get_fab_config(bundle)["tool"]["flwr"]["app"]["components"]["serverapp"] == "my_lab_2_app.server:app"
    sent = zipfile.ZipFile(io.BytesIO(bundle)).namelist()
    assert "site-1.toml" not in sent  # what belongs to an owner is not sent around
    assert "my_lab_2_app/experiment.toml" in sent


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="is not empty; give a new folder"):
        new_app(tmp_path)
    with pytest.raises(UsageError, match="--sites = 0"):
        new_app(tmp_path / "new", sites=0)
    with pytest.raises(UsageError, match="--address = 'here'"):
        new_app(tmp_path / "new", address="here")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_site_file_of_the_documentation_is_valid(tmp_path: Path) -> None:
    page = ROOT / "docs" / "deployment.md"
    [text] = [block.text for block in blocks(page) if block.language == "toml" and "[budget]" in block.text]
    (tmp_path / "site.toml").write_text(text)
    file = read_site_file(tmp_path / "site.toml")
    assert (file.name, file.budget.bytes, file.budget.epochs) == ("clinic", 10**10, 2000)
    assert file.allow.questions == ("LocalLoss",)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None or shutil.which("openssl") is None, reason="no tools for keys")
def test_the_keys_of_a_new_app_are_made(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    new_app(folder, sites=2, address="fl.example.org:9000")
    subprocess.run([folder / "make-keys.sh"], check=True, capture_output=True)
    for name in (
        ["-verify_ip", "127.0.0.1"],
        ["-verify_hostname", "localhost"],
        ["-verify_hostname", "fl.example.org"],
    ):
        verified = ["openssl", "verify", "-CAfile", "certificates/ca.crt", *name, "certificates/server.pem"]
        subprocess.run(verified, cwd=folder, check=True, capture_output=True)
    for i in (1, 2):
        check_security(read_site_file(folder / f"site-{i}.toml"), folder, insecure=False)


def test_ending_a_process_ends_those_that_it_started() -> None:
    program = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '100']); print(p.pid, flush=True); time.sleep(100)"
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    end_group(parent)
    assert parent.returncode == -signal.SIGTERM
    waited_for(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])
    parent.stdout.close()


def test_a_supernode_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Each one that does not stay is counted, whatever its code is."""
    for name, value in (("ATTEMPTS", 2), ("AGAIN_SECONDS", 0.02), ("PAUSE", 0.02)):
        monkeypatch.setattr(serve, name, value)
    for code, returned in ((3, 3), (0, 1)):
        program = f"open({str(tmp_path / str(code))!r}, 'a').write('x'); raise SystemExit({code})"
        assert serve.keep_running([sys.executable, "-c", program]) == returned
        assert (tmp_path / str(code)).read_text() == "xxx"
    assert len([line for line in caplog.messages if "the SuperNode has ended; attempt" in line]) == 4


@pytest.mark.slow
def test_a_killed_site_takes_its_supernode_with_it(tmp_path: Path) -> None:
    """Otherwise the server would take the site for connected, and its clients would fail in every round."""
    node = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(100)"
    program = f"from fedcohort.flower.sites.serve import _run; _run([{sys.executable!r}, '-c', {node!r}])"
    site = subprocess.Popen([sys.executable, "-c", program])
    waited_for(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    pid = int((tmp_path / "pid").read_text())
    assert psutil.pid_exists(pid)
    site.kill()
    site.wait()
    waited_for(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ({"address": "fl.example.org"}, "superlink.address = 'fl.example.org': should be HOST:PORT"),
        ({"root_certificates": "key"}, "superlink.root_certificates = 'key': has no certificate that can be read"),
        ({"private_key": "key.pub"}, "superlink.private_key = 'key.pub': is no ECDSA key without a passphrase"),
        ({"private_key": "other"}, "superlink.private_key = 'other': is no ECDSA key .*it is of another kind"),
        ({"private_key": "locked"}, "superlink.private_key = 'locked': is no ECDSA key .*ssh-keygen -t ecdsa"),
    ],
)
@pytest.mark.skipif(shutil.which("ssh-keygen") is None or shutil.which("openssl") is None, reason="no tools for keys")
def test_files_that_a_supernode_cannot_use_are_refused(link: dict[str, str], message: str, tmp_path: Path) -> None:
    keys = {"key": ("ecdsa", "-b384", ""), "other": ("ed25519", "-a1", ""), "locked": ("ecdsa", "-b384", "secret")}
    for name, (kind, more, secret) in keys.items():
        if name in {"key", link.get("private_key")}:
            subprocess.run(["ssh-keygen", "-q", "-t", kind, more, "-N", secret, "-f", tmp_path / name], check=True)
    (tmp_path / "key.pub").chmod(0o600)
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -subj /CN=ca -out ca.crt"
    subprocess.run(words.split(), cwd=tmp_path, check=True, capture_output=True)
    given = {"address": "127.0.0.1:1", "root_certificates": "ca.crt", "private_key": "key"}
    check_files(SuperLink(**given), tmp_path)
    described = "\n".join(f'{name} = "{value}"' for name, value in (given | link).items())
    path = owner(tmp_path, f"[superlink]\n{described}")
    with pytest.raises(UsageError, match=message):
        serve_site(path)


ENDED_AT_WORK = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from flwr.app import Context, RecordDict
from fedcohort.flower.sites import courier, serve
from fedcohort.flower.sites.site import Site

at_work = threading.Event()

def work(site, request):
    ThreadPoolExecutor(1).submit(lambda: (at_work.set(), time.sleep(1000))).result()

def node(file, folder, where, *, insecure):
    context = Context(1, 1, {"site": str(where)}, RecordDict(), {})
    request = serve.Path(sys.argv[2]).read_bytes()
    threading.Thread(target=courier.call_site, args=(context, request), daemon=True).start()
    return []

def keep_running(command):
    at_work.wait()
    raise KeyboardInterrupt

Site._reply, serve.supernode_command, serve.keep_running = work, node, keep_running
serve.serve_site(sys.argv[1], insecure=True)
"""


def test_a_process_that_is_asked_to_end_does_not_wait_for_a_training(tmp_path: Path) -> None:
    """A server could otherwise keep the owner's process for as long as it likes."""
    (tmp_path / "request").write_bytes(HELLO)
    command = [sys.executable, "-c", ENDED_AT_WORK, str(owner(tmp_path)), str(tmp_path / "request")]
    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "the request that was being answered is not waited for" in ended.stderr
    with alone(tmp_path / "state"):
        pass


def waited_for(done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_flower_is_not_loaded_by_fedcohort_and_torch_not_by_the_courier() -> None:
    """The courier is started for every message, so it has to be quick."""
    for module, other in (("fedcohort, fedcohort.cli", "flwr"), ("fedcohort.flower.sites.courier", "torch")):
        program = f"import sys, {module}; sys.exit({other!r} in sys.modules)"
        assert subprocess.run([sys.executable, "-c", program], env=os.environ, check=False).returncode == 0, module


def test_a_missing_file_of_a_site_is_named_in_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: there is no such file; give the path of a site\.toml$"):
        read_site_file(tmp_path / "none.toml")
