"""What GPUs are to show, one script per claim: update, serve, colocated, sync. Each takes less than ten minutes on one
H100, and runs with `--tiny` shapes on a CPU. `make bench-gpu` runs all four.

Not here: benchmarks of whole training steps (`benchmarks.train`), and those that need no GPU.
"""
