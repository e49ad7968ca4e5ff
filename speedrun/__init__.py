"""The whole paper, small: a Designer and an Executor trained from nothing on two CPU cores. See `speedrun.run`."""
