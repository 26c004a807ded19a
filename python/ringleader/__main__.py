"""``python -m ringleader``: the program."""

import os
import sys

from ringleader._program import program

if __name__ == "__main__":
    path = program()
    os.execv(path, [path] + sys.argv[1:])
