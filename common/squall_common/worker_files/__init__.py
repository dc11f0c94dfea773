"""The files through which a supervisor and its workers talk: what a worker starts from, its signs
of life, and requests to write down what it is doing. May import `cluster`, `daemon` and `security`.
"""
