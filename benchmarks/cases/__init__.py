"""Ratios to a bare loop for the networks, algorithms and cohorts that people use; ``python -m benchmarks.cases`` measures them.

Every case of ``cases.toml`` is played by a loop written by hand and by whole runs of FedCohort, in turns. :mod:`results.speed_cases`
shows the results.
"""
