"""The whole paper, small: a Designer and an Executor trained from nothing on two CPU cores. See `speedrun.__main__`.

Run from a checkout, not installed. Not here: training itself (`trainer`), and pages on it beyond its own reports.
"""
