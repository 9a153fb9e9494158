"""Flash caching with the wear measured.

Policies, sizes and drives are compared on traces without a cache (:func:`simulate`, :func:`predict`), CacheBench configs run on
drives and on models of drives (:func:`bench`, :func:`evaluate`, :func:`study`, :class:`Drive`), :func:`sweep` runs them over all
combinations of values, and :class:`Cache` is the hybrid
DRAM + flash cache itself.

Results have the names of the JSON that the command line ``flashwright`` writes. A failure raises :class:`Error` with the message of
the command line.
"""

from ._cache import Cache
from ._commands import Drive, bench, evaluate, predict, simulate, study
from ._native import Error, __version__
from ._policy import Policy
from ._result import Result, Table
from ._sweep import sweep
from ._trace import Trace, open_trace

__all__ = [
    "Cache",
    "Drive",
    "Error",
    "Policy",
    "Result",
    "Table",
    "Trace",
    "__version__",
    "bench",
    "evaluate",
    "open_trace",
    "predict",
    "simulate",
    "study",
    "sweep",
]
