"""The command `cachew` of the installed package: runs the native program in the package. This module is
outside of the package, so that the command starts without importing NumPy.
"""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cachew", "cachew-command")
    os.environ.setdefault("CACHEW_PYTHON", sys.executable)
    os.execv(program, ["cachew", *sys.argv[1:]])
