"""The rows of tables on pages, in papers and in notebooks."""
