"""What Spark's Python workers run: nothing here knows of data frames.

code        the user's package and what it depends on, in a Python worker
stages      the functions that Spark calls, partition by partition
task        runs one task over sections, with a worker's engine
arrow       columns that stay Arrow between two tasks
counts      what tasks count, added up in the driver
daemon      forks the workers, with the imports already made
hiding      leaves the outputs out of what `emit` returns
"""
