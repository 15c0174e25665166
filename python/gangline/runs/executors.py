"""Carries out many runs in threads, in processes or on a Dask cluster.

Registered policies release the GIL while they run, so they use threads, which share one copy of the
jobs. Policies written in Python hold the GIL, so they run in processes.
"""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from gangline._support.interrupts import uninterrupted
from gangline.errors import MissingExtraError, OptionError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from multiprocessing.connection import Connection

    Report: TypeAlias = Callable[[float, int, int], None]

__all__ = [
    "EXECUTORS",
    "Apart",
    "ProcessDied",
    "check_executor",
    "check_workers",
    "cores",
    "in_dask",
    "in_threads",
    "traced",
]

EXECUTORS = ("local", "dask")
_AHEAD = 2  # the maximum number of pending tasks for each worker
_COUNT_EVERY_S = 5.0  # the seconds between two counts of the workers of a Dask cluster
_TRIES = 2  # a run that kills its process twice has failed
_LOOK_S = 0.1  # the seconds between two checks of whether a run in a process is still needed

_DIED = (
    "its process died twice; was there enough memory? In a program, code that runs policies in "
    'Python must be under `if __name__ == "__main__":`'
)

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # this function does not exist on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_workers(workers: int | None) -> int:
    """Return the number of concurrent runs; None means one run per core.

    Raises
    ------
    OptionError
        If the value is not a valid number of workers.
    """
    if workers is None:
        return cores()
    if type(workers) is not int or workers < 1:
        message = f"workers: expected an integer >= 1, got {workers!r}"
        raise OptionError(message, field="workers", value=workers)
    return workers


def check_executor(executor: str, address: str | None) -> None:
    """Reject an unknown executor, or an address for an executor that does not accept one."""
    if executor not in EXECUTORS:
        message = f"executor: expected one of {', '.join(EXECUTORS)}, got {executor!r}"
        raise OptionError(message, field="executor", value=executor)
    if address is not None and executor != "dask":
        message = 'address: only for the executor "dask"'
        raise OptionError(message, field="address", value=address)


class ProcessDied(PolicyError):  # noqa: N818 - the name says what happened, as the names in failed.json do
    """The process that carried out a run died, and so did the process that tried the run again."""


class _Stopped(Exception):  # noqa: N818 - it is not an error: the caller wants no more results
    """Ends the active runs after one run has failed, or at Ctrl-C."""


def in_threads(
    work: Callable[[T, Report | None], R],
    tasks: Iterable[T],
    workers: int,
    *,
    in_order: bool = False,
) -> Iterator[R]:
    """Yield `work(task, report)` of each task as it finishes.

    Parameters
    ----------
    work : callable
        Function to call with the task and with the callback to which its run reports progress. The
        callback can stop the run.
    tasks : iterable
        The tasks; each is taken when a worker becomes free, so the iterable may be endless.
    workers : int
        Number of threads. With 1, the calling thread does the work and `report` is None.
    in_order : bool
        Whether to yield in the order of the tasks; threads then work a few tasks ahead.
    """
    from concurrent.futures import ThreadPoolExecutor

    if workers == 1:
        yield from (work(task, None) for task in tasks)
        return
    stop = threading.Event()

    def report(*_: float) -> None:
        if stop.is_set():
            raise _Stopped

    pool = ThreadPoolExecutor(workers, thread_name_prefix="gangline")

    def submit(task: T) -> Future[R]:
        return pool.submit(work, task, report)

    try:
        for _, future in _handed_out(submit, tasks, lambda: _AHEAD * workers, in_order=in_order):
            with uninterrupted():
                result = future.result()  # the future is done
            yield result
    finally:
        try:
            with uninterrupted():
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
        finally:
            pool.shutdown(wait=True)


def _handed_out(
    submit: Callable[[T], Future[R]],
    tasks: Iterable[T],
    room: Callable[[], int],
    *,
    in_order: bool = False,
) -> Iterator[tuple[T, Future[R]]]:
    """Yield each task with its future when it is done; at most `room()` tasks are pending.

    The function waits only on the queue of finished futures, because an interrupt does no harm
    there.
    """
    from queue import SimpleQueue

    ahead = iter(tasks)
    under_way: dict[Future[R], T] = {}
    done: SimpleQueue[Future[R]] = SimpleQueue()
    early: set[Future[R]] = set()  # tasks that finished before an earlier task
    while True:
        for task in islice(ahead, max(0, room() - len(under_way))):
            with uninterrupted():
                future = submit(task)
                under_way[future] = task
                future.add_done_callback(done.put)
        if not under_way:
            return
        future = next(iter(under_way)) if in_order else done.get()
        while in_order and future not in early:
            early.add(done.get())
        early.discard(future)
        yield under_way.pop(future), future


class Apart:
    """Carries out the work of each thread in a separate process, which is started on first use.

    A process that dies for any reason ends only its own task, which is tried once more. On exit,
    the context manager ends the processes; it ends them at once if an exception was raised.

    Parameters
    ----------
    begin, given
        Function that each process calls first, and the arguments of that function.
    """

    def __init__(self, begin: Callable[..., object], *given: Any) -> None:
        self._begin = begin, given
        self._mine = threading.local()
        self._all: list[_Process] = []

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        for process in self._all:
            # `raised` is set at Ctrl-C, or if the caller closes the generator
            process.end(at_once=raised is not None)
        for process in self._all:
            process.join()

    def do(self, work: Callable[..., R], *given: object, report: Report | None) -> R:
        """Return `work(*given)`; function, arguments and result must be picklable.

        `report` can stop the work.

        Raises
        ------
        ProcessDied
            If two processes died while they ran the task.
        """
        for _ in range(_TRIES):
            process: _Process | None = getattr(self._mine, "process", None)
            try:
                if process is None:
                    process = self._mine.process = _Process()
                    self._all.append(process)
                    process.ask(*self._begin, report)
                result, error = process.ask(work, given, report)
            except (EOFError, ConnectionError):
                self._mine.process = None
                continue
            if error is not None:
                raise error
            done: R = result
            return done
        raise ProcessDied(_DIED)


class _Process:
    """A process that works for a single thread, and the connection to the process."""

    def __init__(self) -> None:
        import multiprocessing

        # a forked process would inherit the locks of Arrow's threads
        context = multiprocessing.get_context("spawn")
        self._line, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,))
        with uninterrupted(), _deaf_children():
            self._process.start()
        there.close()
        self._is_up = False

    def ask(
        self, work: Callable[..., object], given: tuple[object, ...], report: Report | None
    ) -> tuple[Any, BaseException | None]:
        """Return the result of `work(*given)`, or its exception.

        Raises
        ------
        EOFError, ConnectionError
            If the process died.
        """
        if not self._is_up:  # until then, no message is read, and a long one would block
            self._answer(report)
            self._is_up = True
        self._line.send((work, given))
        answer: tuple[Any, BaseException | None] = self._answer(report)
        return answer

    def _answer(self, report: Report | None) -> Any:
        while not self._line.poll(_LOOK_S):
            if not self._process.is_alive() and not self._line.poll():
                raise EOFError  # there is no end of file while its child has the pipe open
            if report is not None:
                report(0.0, 0, 0)  # this raises an exception if no more results are needed
        return self._line.recv()

    def end(self, *, at_once: bool) -> None:
        """End the process: at once, or when it has finished its task."""
        if at_once:
            self._process.kill()
        self._line.close()

    def join(self) -> None:
        """Wait until the process has ended."""
        self._process.join()


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Make processes that are started in this context ignore Ctrl-C from the very beginning.

    The terminal sends the interrupt to the child processes too, but the parent must end them.
    """
    import signal

    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # otherwise `start` does it and unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(line: Connection) -> None:
    """Do the work of the parent in a separate process, which ends when the parent ends."""
    import multiprocessing
    import signal
    from multiprocessing.connection import wait

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was spawned"

    def watch() -> NoReturn:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    line.send(None)  # the process has started
    while True:
        try:
            work, given = line.recv()
        except (EOFError, ConnectionError):  # the parent needs no more results
            return
        try:
            line.send((work(*given), None))
        except BaseException as error:  # noqa: BLE001 - the parent raises the exception
            line.send((None, traced(error)))


def traced(error: BaseException) -> Any:
    """Return an error that can be pickled, with the text of its traceback as its cause."""
    from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]

    return ExceptionWithTraceback(error, error.__traceback__)


def in_dask(
    work: Callable[[T], R],
    tasks: Iterable[T],
    workers: int,
    lost: Callable[[T, ProcessDied], R],
    address: str | None = None,
) -> Iterator[R]:
    """Yield `work(task)` of each task as it finishes on a Dask cluster.

    Parameters
    ----------
    address : str, optional
        Address of the scheduler of a running Dask cluster; its workers must see the same files
        under the same names. By default, a cluster of worker processes is started here and ended
        afterwards.

    Raises
    ------
    MissingExtraError
        If the library distributed is not installed.
    OptionError
        If `address` is not a valid address.
    OSError
        If no scheduler answers at the address, or if the connection to it is lost.
    """
    from concurrent.futures import CancelledError

    try:
        from distributed import Client, KilledWorker
        from distributed.comm import CommClosedError, parse_host_port
    except ImportError:
        message = "the executor dask needs the library distributed: pip install 'gangline[dask]'"
        raise MissingExtraError(message, extra="dask") from None
    scheme, _, host = (address or "").rpartition("://")
    if address is not None and scheme in ("", "tcp", "tls"):
        try:
            parse_host_port(host)
        except ValueError:
            message = f"address: expected an address such as tcp://HOST:8786, got {address!r}"
            raise OptionError(message, field="address", value=address) from None
    quiet = _quiet("distributed", "distributed.client", "distributed.nanny")
    try:
        with quiet, _cluster(address, workers) as cluster, Client(cluster) as client:

            def submit(task: T) -> Future[R]:
                sent: Future[R] = client.submit(work, task, pure=False)
                return sent

            for task, future in _handed_out(submit, tasks, _Room(client)):
                try:
                    yield future.result()
                except KilledWorker:
                    yield lost(task, ProcessDied("the Dask workers that ran it died"))
    except (CancelledError, CommClosedError):
        where = address or "that this run started"
        message = (
            f"the connection to the Dask scheduler {where} was lost; finished runs are kept: run "
            "the same sweep again when the scheduler is back"
        )
        raise ConnectionError(message) from None


class _Room:
    """Counts how many tasks may be pending on a cluster whose workers may join and leave."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._room, self._counted_s = 0, -math.inf

    def __call__(self) -> int:
        if time.monotonic() - self._counted_s > _COUNT_EVERY_S:
            self._room = _AHEAD * max(1, sum(self._client.nthreads().values()))
            self._counted_s = time.monotonic()
        return self._room


def _cluster(address: str | None, workers: int) -> AbstractContextManager[Any]:
    """Return a context with the address, or with a new cluster that ends with the context."""
    from distributed import LocalCluster

    if address is not None:
        return nullcontext(address)
    made: AbstractContextManager[Any] = LocalCluster(
        workers, threads_per_worker=1, dashboard_address=":0"
    )  # any port, because the default one may be in use, which Dask would report on stderr
    return made


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Stop a library from logging errors that the caller reports anyway."""
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
