"""The command ``flashwright`` of the wheel."""

import sys

from ._native import main as _main


def main() -> int:
    """Run the command line with the arguments of this process, and return its exit code."""
    arguments = sys.argv[1:]
    # The one part of the command line that is written in Python.
    if arguments[:1] == ["sweep"] and any(argument.split("=")[0] == "--engine" for argument in arguments):
        from ._ray import main as sweep_on_ray

        return sweep_on_ray(arguments[1:])
    return _main(["flashwright", *arguments])


if __name__ == "__main__":
    sys.exit(main())
