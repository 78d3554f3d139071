"""Tests of races."""
