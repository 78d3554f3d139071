"""The live page: a small server that shows runs while they are still going on."""
