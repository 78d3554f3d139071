"""The built-in selection strategies, one file each; :mod:`fedcohort.selection` exports their classes."""
