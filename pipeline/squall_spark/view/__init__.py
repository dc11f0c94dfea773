"""What people see of a plan and of its run.

explain     a plan as text: inputs, stages, what moves, outputs      no Spark
progress    the stages that run, as lines and on a terminal as a bar
"""
