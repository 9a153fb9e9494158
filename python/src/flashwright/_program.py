"""The command ``flashwright`` of the wheel."""

import sys

from ._native import main as _main


def main() -> int:
    """Run the command line with the arguments of this process, and return its exit code."""
    return _main(["flashwright", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
