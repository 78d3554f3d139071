"""Races: find the best row of an experiment with few runs, by a sequential test that stays valid however often it is looked at."""
