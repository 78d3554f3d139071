"""The modules that a plug-in imports count like the plug-in's own file."""

import re
import sys
from pathlib import Path

import pytest

from fedcohort import UsageError
from fedcohort.core.plugins import from_file
from fedcohort.core.user_code.own_imports import content_with_imports, imported_files
from fedcohort.experiment.plugin_files import by_content


def test_a_changed_import_is_another_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin, helper = tmp_path / "plugin.py", tmp_path / "own_helper_of_a_test.py"
    plugin.write_text("import math\nimport numpy\nfrom own_helper_of_a_test import rate\n\nclass A: ...\n")
    helper.write_text("import no_such_module_at_all\nrate = 1\n")
    values = {"selection": {"name": f"{plugin}:A"}}
    before = by_content(values)["selection"]["name"]
    assert before.endswith(":A")
    assert before == by_content(values)["selection"]["name"]
    helper.write_text("rate = 2\n")
    assert before != by_content(values)["selection"]["name"]


def test_modules_of_a_package_are_found_and_none_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "own_package_of_a_test"
    (package / "inner").mkdir(parents=True)
    for place, text in {
        "__init__.py": "raise SystemExit",
        "one.py": "from .inner import two\nfrom . import __doc__",
        "inner/__init__.py": "",
        "inner/two.py": "from ..one import x\nimport own_package_of_a_test.three",
        "three.py": "x = (",
        "unused.py": "",
    }.items():
        (package / place).write_text(text)
    plugin = tmp_path / "plugin.py"
    found = imported_files(plugin, b"def load():\n    import own_package_of_a_test.one\n")
    assert sorted(name.removeprefix("own_package_of_a_test") for name in found) == [
        "",
        ".inner",
        ".inner.two",
        ".one",
        ".three",
    ]
    assert "own_package_of_a_test" not in sys.modules
    plugin.write_text("import numpy, torch.nn, fedcohort.selection\n")
    assert imported_files(plugin, plugin.read_bytes()) == {}


def test_a_module_that_changed_after_its_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin, helper = tmp_path / "plugin.py", tmp_path / "own_module_that_changes.py"
    plugin.write_text("import own_module_that_changes\n")
    helper.write_text("rate = 1\n")
    __import__("own_module_that_changes")
    content_with_imports(plugin)
    helper.write_text("rate = 2\n")
    with pytest.raises(
        UsageError,
        match=r"own_module_that_changes\.py: has changed since it was imported by plugin\.py; start Python again$",
    ):
        content_with_imports(plugin)
    monkeypatch.delitem(sys.modules, "own_module_that_changes")
    content_with_imports(plugin)


def test_modules_beside_the_file_are_found_before_and_after_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    plugin, neighbour = tmp_path / "plugin.py", tmp_path / "own_neighbour_of_a_test.py"
    plugin.write_text("import own_neighbour_of_a_test\n\n\nclass A:\n    rate = own_neighbour_of_a_test.rate\n")
    neighbour.write_text("rate = 3\n")
    before = content_with_imports(plugin)
    assert imported_files(plugin, plugin.read_bytes()) == {"own_neighbour_of_a_test": neighbour}
    assert from_file(f"{plugin}:A", "selection.name").rate == 3
    assert sys.path[-1] == str(tmp_path)
    assert content_with_imports(plugin) == before
    neighbour.write_text("rate = 4\n")
    with pytest.raises(UsageError, match="has changed since it was imported"):
        content_with_imports(plugin)
    monkeypatch.delitem(sys.modules, "own_neighbour_of_a_test")
    assert content_with_imports(plugin) != before


def test_modules_in_a_folder_without_init_are_found_before_and_after_they_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder, plugin = tmp_path / "own_folder_of_a_test", tmp_path / "plugin.py"
    folder.mkdir()
    inner = folder / "inner.py"
    inner.write_text("rate = 5\n")
    plugin.write_text("from own_folder_of_a_test.inner import rate\n\n\nclass A:\n    rate = rate\n")
    before = content_with_imports(plugin)
    assert from_file(f"{plugin}:A", "selection.name").rate == 5
    assert imported_files(plugin, plugin.read_bytes()) == {"own_folder_of_a_test.inner": inner}
    assert content_with_imports(plugin) == before
    inner.write_text("rate = 6\n")
    with pytest.raises(UsageError, match="has changed since it was imported"):
        content_with_imports(plugin)


@pytest.mark.parametrize("module", ["own_equal_name", "own_equal_folder.inner"])
def test_a_module_of_another_plug_in_is_not_taken_for_one_beside_the_file(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    plugins = [tmp_path / folder / "plugin.py" for folder in ("one", "two", "equal")]
    helpers = [plugin.parent / f"{module.replace('.', '/')}.py" for plugin in plugins]
    for plugin, helper, rate in zip(plugins, helpers, (1, 2, 1), strict=True):
        helper.parent.mkdir(parents=True)
        helper.write_text(f"rate = {rate}\n")
        plugin.write_text(f"class A:\n    def rate(self):\n        from {module} import rate\n        return rate\n")
    one, two, equal = (f"{plugin}:A" for plugin in plugins)
    assert from_file(one, "selection.name")().rate() == 1
    assert from_file(equal, "selection.name")().rate() == 1
    file = re.escape(module.replace(".", "/") + ".py")
    message = (
        rf"imports {module} from \S+wo/{file}, but Python would take \S+ne/{file}; rename one of these files, or start"
    )
    with pytest.raises(UsageError, match=message):
        from_file(two, "selection.name")
    for name in {module, module.partition(".")[0]}:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.startswith(str(tmp_path))])
    assert from_file(two, "selection.name")().rate() == 2
