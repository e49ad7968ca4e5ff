"""Measurements beside peers, each one command: `python -m benchmarks.NAME`. Not here: tests, and claims without a
peer."""
