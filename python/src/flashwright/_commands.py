"""The commands as functions. Keyword options are the flags of the command line, with ``_`` for ``-``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Union

from ._call import Option, call, flags, text
from ._policy import Policy
from ._result import Result, Table
from ._trace import Trace, open_trace

Source = Union[Trace, str, "PathLike[str]", object]


def _trace(trace: Source) -> Trace:
    return trace if isinstance(trace, Trace) else open_trace(trace)


def simulate(
    trace: Source,
    policies: str | Policy | Sequence[str | Policy] = ("fifo", "lru", "s3fifo", "sieve"),
    sizes: int | str | Sequence[int | str] = ("1%", "10%"),
    *,
    progress: bool = True,
    **options: Option,
) -> Table:
    """Simulate hit ratios of policies at cache sizes, without a cache or a device.

    Parameters
    ----------
    trace : Trace, path or table
        The requests: see :func:`open_trace`.
    policies : str, Policy, or sequence of them
        Names of policies, as ``flashwright simulate --help`` lists them, and policies written in Python (see :class:`Policy`).
    sizes : size or sequence of sizes
        Bytes (an integer, or text such as ``"64MiB"``), a share of the trace's footprint (``"10%"``), or a number of objects
        (``"1000obj"``).
    progress : bool
        Whether a bar shows the progress, if tqdm is installed.
    **options
        Flags of ``flashwright simulate``: ``warmup``, ``sample``, ``threads``, ``seed``, ``ignore_size`` and others.

    Returns
    -------
    Table
        One row for each policy and size, policies first: ``policy``, ``size_bytes``, ``requests``, ``hits``,
        ``object_hit_ratio``, ``byte_hit_ratio`` (0 to 1), ``write_amplification`` and others.
    """
    trace = _trace(trace)
    if isinstance(sizes, (int, str)):
        sizes = [sizes]
    if isinstance(policies, (str, Policy)):
        policies = [policies]
    written = [(policy.name or type(policy).__name__, policy) for policy in policies if isinstance(policy, Policy)]
    names = [policy if isinstance(policy, str) else policy.name or type(policy).__name__ for policy in policies]
    chosen = [f"--policy={text(names)}", f"--size={text(sizes)}", *flags(options)]
    result = Result(call(["simulate", *chosen, *trace.arguments()], progress=progress, policies=written))
    return Table(result["rows"], result)


def predict(trace: Source, drive: str, *, progress: bool = True, **options: Option) -> Table:
    """Predict what caches on a drive would do with a trace: hits, writes, years, carbon and cost.

    Parameters
    ----------
    trace : Trace, path or table
        The requests: see :func:`open_trace`.
    drive : str
        The name of a drive card (``"pm9d3"``), or the path of one.
    progress : bool
        Whether a bar shows the progress, if tqdm is installed.
    **options
        Flags of ``flashwright predict``: ``dram`` (``["16GiB"]``), ``utilization``, ``soc``, ``rate`` (requests per second) and
        others.

    Returns
    -------
    Table
        One row for each point: ``dram_bytes``, ``utilization``, ``hit_ratio``, ``dlwa`` and others. ``result["pareto"]`` lists
        the rows with the most hits for their carbon.
    """
    trace = _trace(trace)
    result = Result(
        call(["predict", f"--drive={drive}", *flags(options), *trace.arguments()], progress=progress)
    )
    return Table(result["points"], result)


def bench(
    config: str | PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    scale: str | None = None,
    **options: Option,
) -> Result:
    """Run a CacheBench config against the cache.

    Parameters
    ----------
    config : path or mapping
        The config, as a file or as the content of one.
    overrides : mapping, optional
        Values of keys: ``{"cache_config.cacheSizeMB": 64}``. ``None`` removes a key.
    device : str, optional
        Flash device in place of the config's: ``"sim:pm9d3"`` is a model drive in virtual time, ``"memory:"`` is memory.
    scale : str, optional
        Divides sizes and numbers of keys: ``"1/1024"``.
    **options
        Flags of ``flashwright bench``: ``timeout_seconds``, ``plot``, ``seed``, ``force`` and others.

    Returns
    -------
    Result
        The run as ``flashwright bench --json``. A run whose checks failed is returned, with ``passed`` false.
    """
    sets = [f"--set={key}={json.dumps(value)}" for key, value in (overrides or {}).items()]
    chosen = [*sets, *flags({"device": device, "scale": scale, **options})]
    if not isinstance(config, Mapping):
        return Result(call(["bench", fspath(config), *chosen]))
    with tempfile.NamedTemporaryFile("w", prefix="flashwright-", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        return Result(call(["bench", file.name, *chosen]))


def evaluate(drive: str, **options: Option) -> Result:
    """Test whether a drive, or the model of one, suits a flash cache.

    Parameters
    ----------
    drive : str
        The name of a drive card, or the path of a drive. A real drive loses its data, and needs ``yes=True``.
    **options
        Flags of ``flashwright evaluate``: ``profile``, ``rates``, ``scale``, ``min_years`` and others.

    Returns
    -------
    Result
        ``profiles`` with the runs of each workload, and ``verdict``.
    """
    return Result(call(["evaluate", drive, *flags(options)]))


def study(name: str, *, figures: str | PathLike[str] | None = None, **options: Option) -> Result:
    """Reproduce a published figure.

    Parameters
    ----------
    name : str
        The study, as ``flashwright study`` lists them.
    figures : path, optional
        Directory for the plots. By default a new temporary directory; the result names the files.
    **options
        Flags of ``flashwright study``: ``scale``, ``trace``, ``seed`` and others.

    Returns
    -------
    Result
        ``points`` with the paper's values beside ours, and ``figures`` with the paths of the plots.
    """
    directory = fspath(figures) if figures is not None else tempfile.mkdtemp(prefix="flashwright-study-")
    return Result(call(["study", name, f"--figures={directory}", *flags(options)]))


class Drive:
    """A model of a drive.

    Parameters
    ----------
    card : str
        The name of a drive card (``"pm9d3"``), or the path of one.
    """

    def __init__(self, card: str) -> None:
        self.card = card
        self.description = Result(call(["ssd", "cards", card]))

    def __repr__(self) -> str:
        return f"<flashwright.Drive {self.card}>"

    @staticmethod
    def cards() -> Result:
        """The cards that are built in."""
        return Result(call(["ssd", "cards"]))

    def run(self, **options: Option) -> Result:
        """Run a write pattern on the drive, without a cache.

        Parameters
        ----------
        **options
            Flags of ``flashwright ssd run``: ``pattern``, ``op``, ``gc``, ``scale``, ``timed`` and others.

        Returns
        -------
        Result
            ``dlwa``, counts of pages and erases, and with ``timed`` latencies in nanoseconds, as ``flashwright ssd run --json``.
        """
        return Result(call(["ssd", "run", self.card, *flags(options)]))
