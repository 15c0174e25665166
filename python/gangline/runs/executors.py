"""Carries out many runs: here, by threads or processes, or on a Dask cluster.

Policies of the registry let the interpreter go while they run, so threads share one copy of the
jobs. Policies in Python hold it: they get processes.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from gangline.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

__all__ = [
    "EXECUTORS",
    "check_workers",
    "cores",
    "in_dask",
    "in_order",
    "in_processes",
    "in_threads",
    "processes",
]

EXECUTORS = ("local", "dask")
_AHEAD = 2  # tasks per worker that are handed out before the first is done
_COUNT_EVERY_S = 5.0  # between two looks at how many workers a Dask cluster has
_TRIES = 2  # a run that ends its process twice has failed

_DIED = (
    "its process died twice; was the memory enough? A program carries out policies in Python "
    'under `if __name__ == "__main__":`'
)

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_workers(workers: int | None) -> int:
    """Return how many runs go at once; None = one per core.

    Raises
    ------
    OptionError
        If it is no number of workers.
    """
    if workers is None:
        return cores()
    if type(workers) is not int or workers < 1:
        message = f"workers: expected an integer >= 1, got {workers!r}"
        raise OptionError(message, field="workers", value=workers)
    return workers


class _Stopped(Exception):  # noqa: N818 - no error: the caller wants no more
    """Ends the runs that are under way when one failed, or at Ctrl-C."""


def in_order(
    work: Callable[[T, Callable[[float, int, int], None] | None], R],
    tasks: Iterable[T],
    workers: int,
) -> Iterator[R]:
    """Yield `work(task, report)` of each task in their order; threads work ahead by a few.

    Parameters
    ----------
    work : callable
        Gets the task and what its run reports to, which is how the run is stopped.
    tasks : iterable
        Taken as workers become free, so there may be any number.
    workers : int
        Threads; with 1 the calling thread works.
    """
    if workers == 1:
        yield from (work(task, None) for task in tasks)
        return
    with _threads(work, workers) as submit:
        under_way: deque[Future[R]] = deque()
        for task in tasks:
            under_way.append(submit(task))
            if len(under_way) >= _AHEAD * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def in_threads(
    work: Callable[[T, Callable[[float, int, int], None] | None], R],
    tasks: Iterable[T],
    workers: int,
) -> Iterator[R]:
    """Yield `work(task, report)` of each task as it is done; arguments as for `in_order`."""
    from queue import SimpleQueue

    if workers == 1:
        yield from (work(task, None) for task in tasks)
        return
    done: SimpleQueue[Future[R]] = SimpleQueue()
    under_way = 0
    with _threads(work, workers) as submit:
        for task in tasks:
            submit(task).add_done_callback(done.put)
            under_way += 1
            if under_way >= _AHEAD * workers:
                yield done.get().result()
                under_way -= 1
        for _ in range(under_way):
            yield done.get().result()


@contextmanager
def _threads(
    work: Callable[[T, Callable[[float, int, int], None] | None], R], workers: int
) -> Iterator[Callable[[T], Future[R]]]:
    """Yield what hands a task to a thread; in the end what is under way is stopped."""
    from concurrent.futures import ThreadPoolExecutor

    stop = threading.Event()

    def report(*_: float) -> None:
        if stop.is_set():
            raise _Stopped

    pool = ThreadPoolExecutor(workers, thread_name_prefix="gangline")
    try:
        yield lambda task: pool.submit(work, task, report)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def in_processes(
    work: Callable[[T], R], tasks: Iterable[T], workers: int, lost: Callable[[T, str], R]
) -> Iterator[R]:
    """Yield `work(task)` of each task as it is done in a process; all can be pickled.

    A process that dies, whatever the cause, takes no other run with it: what was under way is done
    again, and a task under which processes died twice becomes `lost(task, reason)`.
    """
    from concurrent.futures import FIRST_COMPLETED, wait
    from concurrent.futures.process import BrokenProcessPool

    fresh = ((task, 0) for task in tasks)
    again: deque[tuple[T, int]] = deque()  # with how often a process died meanwhile
    following = next(fresh, None)
    while again or following:
        # after a death one task at a time, so that the guilty one is known
        is_careful = bool(again)
        under_way: dict[Future[R], tuple[T, int]] = {}
        with processes(1 if is_careful else workers) as pool:
            room = 1 if is_careful else _AHEAD * workers
            try:
                while True:
                    while len(under_way) < room:
                        entry = following if not is_careful else again[0] if again else None
                        if entry is None:
                            break
                        under_way[pool.submit(work, entry[0])] = entry
                        if is_careful:
                            again.popleft()
                        else:
                            following = next(fresh, None)
                    if not under_way:
                        break
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        del under_way[future]
                        yield result
            except BrokenProcessPool:
                for future, (task, deaths) in under_way.items():
                    if future.done() and not future.exception():
                        yield future.result()
                    elif is_careful and deaths + 1 >= _TRIES:
                        yield lost(task, _DIED)
                    else:
                        again.append((task, deaths + 1))


@contextmanager
def processes(
    workers: int, begin: Callable[..., object] | None = None, *given: object
) -> Iterator[Any]:
    """Yield a pool of processes, each of which calls `begin(*given)` first.

    They end at once if the caller wants no more.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # a forked process would inherit the locks of Arrow's threads
    context = multiprocessing.get_context("spawn")
    stopped, stop = context.Pipe(duplex=False)
    first: tuple[Any, ...] = (stopped, begin, *given)
    pool = ProcessPoolExecutor(workers, context, initializer=_follow, initargs=first)
    try:
        yield pool
    except BaseException:  # Ctrl-C, or the caller closes the generator
        stop.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        stop.close()
        stopped.close()


def _follow(stopped: Any, begin: Callable[..., object] | None = None, *given: object) -> None:
    """End this process when its parent ends, is killed or says so; leave Ctrl-C to the parent."""
    import multiprocessing
    import signal
    from multiprocessing.connection import wait

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> NoReturn:
        wait([stopped] if parent is None else [stopped, parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if begin is not None:
        begin(*given)


def in_dask(
    work: Callable[[T], R],
    tasks: Iterable[T],
    workers: int,
    lost: Callable[[T, str], R],
    address: str | None = None,
) -> Iterator[R]:
    """Yield `work(task)` of each task as it is done on a Dask cluster.

    Parameters
    ----------
    address : str, optional
        Scheduler of a cluster that runs already; it sees the same files under the same names. By
        default a cluster of worker processes is started here, and ended afterwards.

    Raises
    ------
    MissingExtraError
        If the library distributed is not installed.
    OptionError
        If `address` is none.
    OSError
        If no scheduler answers there, or the connection to it is lost.
    """
    from concurrent.futures import CancelledError

    try:
        from distributed import Client
        from distributed.comm import CommClosedError, parse_host_port
    except ImportError:
        message = "the executor dask needs the library distributed: pip install 'gangline[dask]'"
        raise MissingExtraError(message, extra="dask") from None
    scheme, _, host = (address or "").rpartition("://")
    if address is not None and scheme in ("", "tcp", "tls"):
        try:
            parse_host_port(host)
        except ValueError:
            message = f"address: expected one such as tcp://HOST:8786, got {address!r}"
            raise OptionError(message, field="address", value=address) from None
    quiet = _quiet("distributed", "distributed.client", "distributed.nanny")
    try:
        with quiet, _cluster(address, workers) as cluster, Client(cluster) as client:
            yield from _by_client(client, work, tasks, lost)
    except (CancelledError, CommClosedError):
        where = address or "that was started here"
        message = (
            f"the connection to the Dask scheduler {where} was lost; what is finished is kept: "
            "run the same sweep again when it is back"
        )
        raise ConnectionError(message) from None


def _cluster(address: str | None, workers: int) -> AbstractContextManager[Any]:
    """Return the cluster at an address, or one that ends with its context."""
    from distributed import LocalCluster

    if address is not None:
        return nullcontext(address)
    made: AbstractContextManager[Any] = LocalCluster(
        workers, threads_per_worker=1, dashboard_address=":0"
    )  # any port: the usual one may be in use, which would be said on stderr
    return made


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Keep a library from logging what its caller reports."""
    import logging

    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _by_client(
    client: Any, work: Callable[[T], R], tasks: Iterable[T], lost: Callable[[T, str], R]
) -> Iterator[R]:
    from distributed import KilledWorker, as_completed

    ahead = iter(tasks)
    following = next(ahead, None)
    under_way: dict[str, T] = {}
    done = as_completed()
    counted_s, room = -math.inf, 0
    while True:
        if time.monotonic() - counted_s > _COUNT_EVERY_S:  # workers may join and leave
            room = _AHEAD * max(1, sum(client.nthreads().values()))
            counted_s = time.monotonic()
        while following is not None and len(under_way) < room:
            future = client.submit(work, following, pure=False)
            under_way[future.key] = following
            done.add(future)
            following = next(ahead, None)
        if not under_way:
            return
        future = next(done)
        task = under_way.pop(future.key)
        try:
            yield future.result()
        except KilledWorker:
            yield lost(task, "the Dask workers that ran it died")
