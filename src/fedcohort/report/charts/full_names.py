"""The names of rows that charts show shortened."""

from fedcohort.report.data.report_data import Story

__all__ = ["full_names", "names_by_label"]


def names_by_label(story: Story) -> dict[str, str]:
    """The full names of rows by their labels, which are shortened for charts."""
    return {label: row.label for label, row in zip(story.labels, story.rows, strict=True)}


def full_names(story: Story) -> dict[str, str]:
    """The full names of rows by the shortened names that charts show. In a sweep, names do not repeat the settings of the point."""
    found = names_by_label(story)
    compared = story.comparison
    if compared is not None and len(compared.groups) > 1:
        names = story.row_looks.names
        of_rows = [names.get(label, label) for label, _ in story.played]
        found |= dict(zip(of_rows, compared.names_without_settings, strict=True))
    return {shown: name for shown, name in found.items() if " ".join(name.split()) != shown}
