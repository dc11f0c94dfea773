"""`python -m tests.simulation --seed N [--trace]`, or `--seeds N [--from M] [--processes P]`."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.campaign import main


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first of them")
    parser.add_argument("--commit", action="store_true", help="half of the seeds from the commit")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_arguments()))
