"""The command line: one file per noun. What they share:

`root` is the list of commands, `faults` how they fail, `talking` how they reach a node, `tables` how they print.
"""

import sys


def main() -> None:
    from penstock.cli.root import run

    sys.exit(run(sys.argv[1:]))
