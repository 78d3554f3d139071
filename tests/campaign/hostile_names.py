"""Names that are attacks, in a real browser: markup, scripts, quotes, templates, control characters, other directions of writing.

They are the names of experiments, rows, classes and data sets, and the words in notes, details, reports, terms and disclosures of
records. On the report, the live page and the page about clients nothing of them is executed, the console is empty, nothing leaves the
machine, and the names are shown.
"""

import json
import os
import random
import re
import shutil
import sqlite3
import unicodedata
from pathlib import Path

from tests.campaign.attack import Attack, Unavailable, hold
from tests.campaign.federations import description
from tests.campaign.forked import begin, command, play

__all__ = ["HostileNames", "hostile_name"]

HURT = "window.hurt=1"
BASES = [
    f"<script>{HURT}</script>", f"</script><script>{HURT}</script>", f"<img src=x onerror={HURT}>", f"<svg/onload={HURT}>",
    f"</style><script>{HURT}</script>", f"</title><body onload={HURT}>", f"--><script>{HURT}</script><!--",
    f"]]><script>{HURT}</script>", f'" onmouseover="{HURT}" x="', f"' autofocus onfocus='{HURT}", f"javascript:{HURT}",
    f"`;{HURT};//", f"\\x3cscript\\x3e{HURT}", f"\\u003cscript>{HURT}</script>", "{{7*7}}", "{% raw %}{{ config }}{% endraw %}",
    "${7*7}", "#{7*7}", "<%= 7*7 %>", "{{constructor.constructor('" + HURT + "')()}}", "&lt;b&gt;&amp;&#0;", "<!--",
    "<base href=//example.org>", "<iframe srcdoc='<script>parent.hurt=1</script>'>", "<link rel=stylesheet href=//example.org/x.css>",
    "<meta http-equiv=refresh content='0;url=//example.org'>", "<plaintext>", "<noscript>", "=cmd|' /C calc'!A0", "__proto__",
    "constructor", "toString", "hasOwnProperty", "null", "NaN", "-1", "[0]", "a.b[0]", "a\\.b", "datum.x", "$&", "%s%n%x",
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe", "\N{ARABIC LETTER ALEF}\N{ARABIC LETTER BEH} abc", "e\N{COMBINING ACUTE ACCENT}" * 20,
    "\N{ZERO WIDTH SPACE}\N{ZERO WIDTH JOINER}x", "\N{PILE OF POO}\N{FAMILY}", "\x07\x1b[31mred\x1b[0m",
    "line\nbreak\ttab\rreturn", "\N{LINE SEPARATOR}x\N{PARAGRAPH SEPARATOR}", "\x00null", "\ufeffmark", "\ufffe\uffff",
    "word " * 60, "W" * 200, " ", "..", "../../x", "a/b\\c",
]  # fmt: skip
"""Names, each with another way to break out of words."""


def hostile_name(draw: random.Random) -> str:
    """A name: one of the list, or pieces of several."""
    name = draw.choice(BASES)
    while draw.random() < 0.3:
        other = draw.choice(BASES)
        name = name[: draw.randrange(len(name) + 1)] + other + name[draw.randrange(len(name) + 1) :]
    return name[:300]


class HostileNames(Attack):
    """Hostile names on every page."""

    name = "names"
    did = "hostile names of experiments, rows, classes, data and notes on three pages in Chromium"
    unit = "pages"
    full = 120
    least = 2
    small = (1,)
    limit = 180.0

    def prepare(self) -> None:
        """Start the browser.

        Raises:
            Unavailable: there is no browser here.
        """
        try:
            from playwright.sync_api import sync_playwright
        except ImportError:
            raise Unavailable("the browser needs playwright") from None
        programs = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
        found = os.environ.get("FEDCOHORT_BROWSER") or next(filter(None, programs), None)
        if found is None:
            raise Unavailable("there is no Chromium; give one in FEDCOHORT_BROWSER")
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])

    def close(self) -> None:
        """End the browser."""
        self._browser.close()
        self._playwright.stop()

    def case(self, number: int, draw: random.Random) -> int:
        """A comparison with such names, read on three pages."""
        names = [hostile_name(draw) for _ in range(12)]
        refused = begin(lambda: _played(self.place, names), self.place).wait()
        if refused.code == 2:  # names with control characters may be refused, in one line
            names = [_printable(name) for name in names]
            refused = begin(lambda: _played(self.place, names), self.place).wait()
        hold(refused.code == 0, f"names {names}: exit code {refused.code}: {refused.err[-1500:]}")
        written = _write_notes(self.place / "runs", names)
        play(self.place, "report", "--runs", "runs", "-o", "page.html")
        kept = json.loads((self.place / "kept.json").read_text("utf-8"))
        text = self._opened((self.place / "page.html").as_uri(), names)
        self._shown(text, [kept["name"], *kept["labels"]])
        self._opened((self.place / "clients.html").as_uri(), names)
        live = command(self.place, "live", "--runs", "runs", "--port", "0", name="live")
        try:
            self._opened(_address(live.out), names)
        finally:
            live.kill_group()
        one = next(path for path in sorted((self.place / "runs").iterdir()) if path.is_dir())
        shown = play(self.place, "why", one, "--round", "1").out
        hold("\x1b" not in shown, f"why prints control characters: {written} {shown!r}"[:600])
        return 3

    def _opened(self, address: str, names: list[str]) -> str:
        """Open a page, use its switches, and return its text."""
        page, complaints, addresses = self._browser.new_page(), [], []
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: addresses.append(request.url))
        try:
            page.goto(address)
            page.evaluate("fedcohort.ready")
            page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
            hold(page.evaluate("window.hurt") is None, f"a name was executed on {address}: {names}")
            hold(not complaints, f"the console on {address}: {complaints}; names {names}")
            away = [
                url
                for url in addresses
                if not url.startswith(("file:", "data:", "blob:", address.split("?")[0].rsplit("/", 1)[0]))
            ]
            hold(not away, f"{address} asked for {away}")
            return str(page.evaluate("document.title + ' ' + document.body.textContent"))
        finally:
            page.close()

    def _shown(self, text: str, names: list[str]) -> None:
        """Hold that every name is somewhere on the page, at least its beginning."""
        there = _bare(text)
        for name in names:
            hold(_bare(name)[:24] in there, f"the name {name!r} is not shown")


def _bare(text: str) -> str:
    """Text without spaces, and without characters that cannot be shown."""
    return "".join(
        char for char in text if not char.isspace() and unicodedata.category(char)[0] != "C" and char != "\ufffd"
    )


def _printable(name: str) -> str:
    """A name without control characters and at least one character long."""
    return (
        "".join(
            char for char in name if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")
        ).strip()
        or "empty"
    )


def _played(place: Path, names: list[str]) -> int:
    """Play a comparison in which every name is hostile, and draw its clients; 2 if the names are refused."""
    import numpy as np

    import fedcohort
    from fedcohort.experiment.given_objects import Given
    from fedcohort.report.federation_page import pictures
    from fedcohort.runs.prepare_run import look

    rng = np.random.default_rng(0)
    labels = np.arange(120) % 4
    features = rng.normal(size=(120, 4)).astype(np.float32) + labels[:, None]
    distinct = [f"{name}{i}" if names[6:10].count(name) > 1 else name for i, name in enumerate(names[6:10])]
    rows = [
        {"label": f"{name}{i}", "selection": {"name": "ucb", "k": 2, "initial_rounds": i}}
        for i, name in enumerate(names[1:4])
    ]
    try:
        data = fedcohort.from_arrays(
            (features[:90], labels[:90]), (features[90:], labels[90:]), classes=distinct, name=names[4]
        )
        values = description(name=names[0], rounds=2, variants=rows)
        del values["data"]
        experiment = fedcohort.Experiment(**values)
        compared = fedcohort.compare(experiment, data=data, runs=place / "runs")
    except fedcohort.UsageError as error:
        print(error)
        shutil.rmtree(place / "runs", ignore_errors=True)
        return 2
    kept = {"name": compared.name, "labels": [row.label for row in compared.rows][1:]}
    (place / "kept.json").write_text(json.dumps(kept), "utf-8")
    (place / "clients.html").write_text(
        pictures(experiment, *look(experiment.single(0), Given(data=data))), encoding="utf-8"
    )
    return 0


def _write_notes(runs: Path, names: list[str]) -> str:
    """Put hostile words where strategies, algorithms and errors of users write them, into the first run, with valid seals."""
    from tests.records import seal_again

    path = next(path for path in sorted(runs.iterdir()) if path.is_dir())
    words = names[10].replace("\x00", "") or "note"
    term = json.dumps({words: 1.0})
    with sqlite3.connect(path / "run.sqlite") as database:
        database.execute("UPDATE rounds SET note = ?", (words,))
        database.execute("UPDATE clients SET detail = ?, reports = ?", (words, term))
        database.execute("UPDATE decisions SET terms = ?", (term,))
        database.execute("UPDATE ledger SET discloses = ?", (words,))
        seal_again(database)
    database.close()
    return words


def _address(out: Path) -> str:
    """The address that ``live`` prints."""
    import time

    for _ in range(1000):
        if found := re.search(r"http://\S+", out.read_text("utf-8")):
            return found[0]
        time.sleep(0.02)
    raise AssertionError("live printed no address")
