"""Which images of a folder are training and test samples, by the names of its folders.

The library ``datasets`` looks for the names of splits in all parts of a path, and only in small letters: it would take the images of
``test/bullet-train/`` for training samples, too, and divide ``Train/`` and ``Test/`` anew. Only the folders above those of the classes
count here, in any letters.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.array_checks import brief

__all__ = ["check_depths", "mention_inner_folders", "split_patterns"]

log = logging.getLogger("fedcohort")

FOLDER_NAMES = {
    "train": r"train|training",
    "validation": r"validation|valid|dev|val",
    "test": r"test|testing|eval|evaluation",
}
"""Names of the folders of each split; a folder may have more words in its name, as in ``train_images``."""
IMAGES = frozenset(
    [".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"]
)
"""Ends of the names of images."""
OTHER_DATA = frozenset([".arrow", ".gz", ".parquet", ".tar", ".zip"])
"""Ends of the names of files with other data, or with many images in one."""
DESCRIPTIONS = frozenset(["metadata.csv", "metadata.jsonl", ".huggingface.yaml"])
"""Files that tell the library what the images are, or where they are."""


def split_patterns(folder: Path, files: Iterable[Path]) -> dict[str, list[str]] | None:
    """For each split, patterns of the files in it; None if the folder is not one of images, and the library finds its splits.

    Args:
        folder: the folder.
        files: all files in it.

    >>> files = ["photos/Train/car/0.png", "photos/Train/train/1.png", "photos/Test/car/2.png"]
    >>> split_patterns(Path("photos"), map(Path, files))
    {'train': ['Train/**'], 'test': ['Test/**']}
    """
    images = _images(folder, files)
    if not images:
        return None
    above, images = _without_common_folders(images)
    folders = _folders_of_splits(images)
    if not any(folders.values()) and all(len(path.parts) == 2 for path in images):
        folders["train"] = [""]
    names = [*above, *(name for split in folders.values() for name in split)]
    if not folders["train"] or len(set(names)) < len(names) or any(set("*?[]") & set(name) for name in names):
        return None
    return {
        split: ["/".join(filter(None, [*above, name, "**"])) for name in those]
        for split, those in folders.items()
        if those
    }


def check_depths(folder: Path, files: Iterable[Path], patterns: Mapping[str, Sequence[str]] | None, where: str) -> None:
    """Refuse images at different depths of folders: the library would find no classes.

    Args:
        folder: the folder.
        files: all files in it.
        patterns: those of the files in each split; None for all files.
        where: the data set, for messages.

    Raises:
        UsageError: there are such images.
    """
    begins = tuple(pattern.removesuffix("**") for those in (patterns or {"": ["**"]}).values() for pattern in those)
    images = [path for path in _images(folder, files) if path.as_posix().startswith(begins)]
    if len({len(path.parts) for path in images}) > 1:
        first, last = (brief(choice(images, key=lambda path: len(path.parts)), 60) for choice in (min, max))
        raise UsageError(
            f"{where}: images lie at different depths, such as '{first}' and '{last}'; put those of each class into a folder of its "
            "own, <class>/, without folders in it"
        )


def mention_inner_folders(folder: Path, files: Iterable[Path], where: str) -> None:
    """Mention folders that are not used because images lie in folders within them, which are then the classes.

    Args:
        folder: the folder.
        files: all files in it.
        where: the data set, for messages.
    """
    inner: dict[str, set[str]] = {}
    for path in _images(folder, files):
        outer = "/".join(name for name in path.parts[:-2] if not _splits_named(name))
        inner.setdefault(outer, set()).update(path.parts[-2:-1])
    if len(inner) > 1:
        unused = " and ".join(f"'{brief(name, 40)}'" for name in sorted(filter(None, inner))[:2])
        classes = brief(", ".join(sorted(set().union(*inner.values()))), 60)
        log.warning(
            "%s: images lie in folders within %s, and the innermost folders are the classes: %s; if they are not, put the images of "
            "each class into one folder, <class>/", where, unused, classes,
        )  # fmt: skip


def _folders_of_splits(images: list[Path]) -> dict[str, list[str]]:
    """The folders of each split. A folder with images in it is that of a class, whatever its name."""
    with_images = {path.parts[0] for path in images if len(path.parts) <= 2}
    names = sorted({path.parts[0] for path in images} - with_images)
    return {split: [name for name in names if split in _splits_named(name)] for split in FOLDER_NAMES}


def _images(folder: Path, files: Iterable[Path]) -> list[Path]:
    """The images in a folder, by their places in it; none if it has other data, or a file that tells the library about them."""
    inside = [file.relative_to(folder) for file in files]
    if _is_described(folder, inside):
        return []
    return [path for path in inside if path.suffix.lower() in IMAGES and not _is_hidden(path)]


def _is_hidden(path: PurePath) -> bool:
    """Whether the library leaves a file out, because its name or that of a folder above begins with a point or two underscores."""
    return any(part.startswith((".", "__")) for part in path.parts)


def _is_described(folder: Path, inside: Iterable[PurePath]) -> bool:
    """Whether a folder has data that are no images, or a file that tells the library about its images."""
    if any(path.suffix.lower() in OTHER_DATA or path.name in DESCRIPTIONS for path in inside):
        return True
    try:
        return (folder / "README.md").read_bytes().startswith(b"---")
    except OSError:  # there is none, or it cannot be read
        return False


def _without_common_folders(images: list[Path]) -> tuple[list[str], list[Path]]:
    """The folders above all folders of splits and classes, and the paths of the images inside them."""
    above: list[str] = []
    while all(len(path.parts) > 2 for path in images) and len({path.parts[0] for path in images}) == 1:
        name = images[0].parts[0]
        if _splits_named(name):
            break
        above.append(name)
        images = [path.relative_to(name) for path in images]
    return above, images


def _splits_named(name: str) -> list[str]:
    """The splits that the name of a folder holds as words."""
    end, begin = "(?![^-._ 0-9])", "(?<![^-._ 0-9])"
    return [split for split, words in FOLDER_NAMES.items() if re.search(f"(?i){begin}(?:{words}){end}", name)]
