"""What Spark's Python workers run: nothing here knows of data frames.

code        the user's package and what it depends on, in a Python worker
stages      the functions that Spark calls, partition by partition
task        runs one task over sections, with a worker's engine
hiding      leaves the outputs out of what `emit` returns
"""
