"""Runs jobs on a Ray cluster (the extra `cluster`)."""

import contextlib
import functools
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from alfa.errors import AlfaWarning, ConfigError, Stopped
from alfa.paper._job import Job
from alfa.paper._parallel import Before, Message, Workers, run_job
from alfa.paper._reproduce import JobResult
from alfa.training import Progress

# Seconds between two checks of a job for a stop request, and of waiting for a message.
_CHECK_EVERY, _POLL_SECONDS = 2.0, 0.5
# The time limit in seconds for jobs to save their progress.
_STOP_SECONDS = 600.0


class RayWorkers(Workers):
    """The machines of a Ray cluster; starts one on this machine if none is running.

    All machines must share the storage of `out`, the folder of all runs, and of prepared datasets.
    Each job has `threads` CPU cores, and its own GPU if the device is ``"cuda"``. Raises
    ConfigError if Ray is not installed, or no cluster is running at `address`.
    """

    def __init__(
        self, *, device: str, threads: int, before: Before, out: Path, address: str | None = None
    ) -> None:
        try:
            import ray
        except ImportError:
            raise ConfigError(
                "--on ray needs Ray; install it with `pip install 'alfa[cluster]'`."
            ) from None
        self._ray: Any = ray
        _connect(ray, address)
        here = ray.get_runtime_context().get_node_id()
        # The mailbox stays on this machine, so it survives the loss of others.
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": strategy}
        self._mailbox: Any = ray.remote(_Mailbox).options(**options).remote()
        resources = {"num_cpus": threads, "num_gpus": 1 if device.startswith("cuda") else 0}
        num_sharing = _jobs_per_machine(ray.nodes(), resources)
        self._options = {"device": device, "num_sharing": num_sharing, "before": before}
        # `run_parallel` restarts a job whose process died.
        self._run = ray.remote(_run_on_ray).options(**resources, max_retries=0)
        self._names: dict[Any, str] = {}
        self._token = out / f".ray-{os.getpid()}-{time.time_ns()}"
        out.mkdir(parents=True, exist_ok=True)
        self._token.touch()
        # Ray prints messages about dead machines to the standard output.
        self._redirected = contextlib.ExitStack()
        self._redirected.enter_context(contextlib.redirect_stdout(sys.stderr))

    def has_room(self) -> bool:
        return True  # Ray queues the jobs

    def start(self, job: Job) -> None:
        task = self._run.remote(job, self._mailbox, str(self._token), self._options)
        self._names[task] = job.name

    def poll(self) -> list[Message]:
        messages: list[Message] = self._ray.get(self._mailbox.take.remote())
        # Ignore late messages of completed jobs.
        messages = [message for message in messages if message[0] in self._names.values()]
        ended, _ = self._ray.wait(list(self._names), timeout=_POLL_SECONDS)
        for task in ended:
            name = self._names.pop(task)
            try:
                result = self._ray.get(task)
            except self._ray.exceptions.RayTaskError as error:
                # For example, a package is missing on that machine.
                cause = " ".join(repr(error.cause or error).split())
                result = JobResult(failed={name: f"{cause}, on a machine of the cluster."})
            except self._ray.exceptions.RayError:
                result = None  # the process or the machine died
            messages.append((name, result))
        return messages

    def stop(self) -> None:
        with self._redirected:
            try:
                if self._names:
                    self._ray.get(self._mailbox.request_stop.remote())
                    tasks = list(self._names)
                    self._ray.wait(tasks, num_returns=len(tasks), timeout=_STOP_SECONDS)
            finally:
                self._names.clear()
                self._token.unlink(missing_ok=True)
                self._ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Connect to a cluster; if none is running on this machine, start one."""
    options: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.WARNING,
        # All machines must use the same data folders.
        "runtime_env": {"env_vars": {k: v for k, v in os.environ.items() if k.startswith("ALFA_")}},
    }
    try:
        ray.init(address=address or "auto", **options)
    except ConnectionError:
        if address is not None:
            raise ConfigError(
                f"--on ray found no cluster at {address}, the address in RAY_ADDRESS; start one "
                "there with `ray start --head`, or unset RAY_ADDRESS to use this machine."
            ) from None
        warnings.warn(
            "no Ray cluster is running; starting one on this machine.", AlfaWarning, stacklevel=3
        )
        ray.init(address="local", **options)


class _Mailbox:
    """A Ray actor that collects the progress of jobs, and stores the stop request."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Progress]] = []
        self._should_stop = False

    def put(self, name: str, progress: Progress) -> None:
        self._messages.append((name, progress))

    def take(self) -> list[tuple[str, Progress]]:
        messages, self._messages = self._messages, []
        return messages

    def request_stop(self) -> None:
        self._should_stop = True

    def should_stop(self) -> bool:
        return self._should_stop


def _jobs_per_machine(nodes: list[dict[str, Any]], wanted: dict[str, int]) -> int:
    """Return the number of jobs that share the memory of a machine; warn if no machine fits one."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    able = [has for has in alive if has.get("GPU", 0) >= wanted["num_gpus"]]
    most = max((int(has.get("CPU", 0)) // wanted["num_cpus"] for has in able), default=0)
    if most == 0:
        warnings.warn(
            f"no machine of the cluster has {wanted['num_cpus']} CPU cores and "
            f"{wanted['num_gpus']} GPUs; jobs wait until such a machine joins.",
            AlfaWarning,
            stacklevel=3,
        )
    # Jobs with their own GPUs do not share memory.
    return 1 if wanted["num_gpus"] else max(1, most)


def _run_on_ray(job: Job, mailbox: Any, token: str, options: dict[str, Any]) -> JobResult:
    import ray

    if not Path(token).exists():
        message = (
            f"{Path(token).parent} is not the same folder on all machines of the cluster; choose a "
            "shared folder with --out."
        )
        return JobResult(failed={job.name: message})
    checked, stopping = time.monotonic(), False

    def should_stop() -> bool:
        nonlocal checked, stopping
        if not stopping and time.monotonic() - checked > _CHECK_EVERY:
            stopping, checked = ray.get(mailbox.should_stop.remote()), time.monotonic()
        return stopping

    try:
        send = functools.partial(mailbox.put.remote, job.name)
        return run_job(job, send, should_stop=should_stop, **options)
    except Stopped:
        return JobResult()
