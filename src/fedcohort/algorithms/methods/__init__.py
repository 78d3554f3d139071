"""The built-in algorithms, one file each; :mod:`fedcohort.algorithms` exports their classes."""
