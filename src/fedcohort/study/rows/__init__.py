"""The rows of a comparison: what a row is, and which rows are equal, failed, unfinished, or references."""
