"""Jobs on a Ray cluster, which is the extra `cluster`."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from alfa.errors import AlfaWarning, ConfigError, Stopped
from alfa.paper._job import Job
from alfa.paper._reproduce import Outcome
from alfa.paper._spread import Before, News, Workers, run_job
from alfa.train import Progress

# Seconds between two questions of a job whether it should stop, and for which news are waited for.
_ASK, _PATIENCE = 2.0, 0.5
# Seconds that jobs have to keep what they have done.
_TO_STOP = 600.0


class RayWorkers(Workers):
    """The machines of a Ray cluster.

    The run folders and the prepared datasets must lie where all of them find them.

    Args:
        device: where jobs compute; with ``"cuda"`` each has a graphics card of its own.
        threads: processors that each job has.
        before: called before each job.
        out: the folder of all runs.
        address: of the cluster; by default the one at hand.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster.
    """

    def __init__(
        self,
        *,
        device: str,
        threads: int,
        before: Before,
        out: Path,
        address: str = "auto",
    ) -> None:
        try:
            import ray
        except ImportError:
            raise ConfigError(
                "--on ray needs Ray; install it with `pip install 'alfa[cluster]'`."
            ) from None
        self.device, self.before = device, before
        self._ray: Any = ray
        # What decides where data is must be the same for all.
        told = {key: value for key, value in os.environ.items() if key.startswith("ALFA_")}
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.WARNING,
                runtime_env={"env_vars": told},
            )
        except ConnectionError:
            raise ConfigError(
                "--on ray found no cluster; start one with `ray start --head`, or name its "
                "address in the environment variable RAY_ADDRESS."
            ) from None
        here = ray.get_runtime_context().get_node_id()
        # Beside the one who listens, so that no other machine takes it along when it goes.
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        self._board: Any = (
            ray.remote(_Board).options(num_cpus=0, scheduling_strategy=strategy).remote()
        )
        resources = {"num_cpus": threads, "num_gpus": 1 if device.startswith("cuda") else 0}
        self._num_sharing = _most_at_once(ray.nodes(), resources)
        # A job that dies is started anew by whoever started it.
        self._run = ray.remote(_run_on_ray).options(**resources, max_retries=0)
        self._names: dict[Any, str] = {}
        self._token = out / f".ray-{os.getpid()}-{time.time_ns()}"
        out.mkdir(parents=True, exist_ok=True)
        self._token.touch()
        # Ray prints the last words of a machine that dies, among what others may want to read.
        self._aside = contextlib.ExitStack()
        self._aside.enter_context(contextlib.redirect_stdout(sys.stderr))

    def has_room(self) -> bool:
        # Ray keeps those that wait.
        return True

    def start(self, job: Job) -> None:
        made = self._run.remote(
            job, self.device, self._num_sharing, self.before, self._board, str(self._token)
        )
        self._names[made] = job.name

    def hear(self) -> list[News]:
        news = [News(*told) for told in self._ray.get(self._board.news.remote())]
        # One that has ended since may have told its last.
        news = [told for told in news if told.name in self._names.values()]
        ended, _ = self._ray.wait(list(self._names), timeout=_PATIENCE)
        for made in ended:
            try:
                what = self._ray.get(made)
            except self._ray.exceptions.RayTaskError as error:
                # Where it ran, something of ours is missing or broken.
                told = " ".join(repr(error.cause or error).split())
                what = Outcome(failed={self._names[made]: f"{told}, on a machine of the cluster."})
            except self._ray.exceptions.RayError:
                # Its process or its machine is gone.
                what = None
            news.append(News(self._names.pop(made), what))
        return news

    def stop(self) -> None:
        with self._aside:
            try:
                if self._names:
                    self._ray.get(self._board.ask_to_stop.remote())
                    names = list(self._names)
                    self._ray.wait(names, num_returns=len(names), timeout=_TO_STOP)
            finally:
                self._names.clear()
                self._token.unlink(missing_ok=True)
                self._ray.shutdown()


class _Board:
    """Where jobs write how far they are, and read whether they should stop."""

    def __init__(self) -> None:
        self._told: list[tuple[str, Progress]] = []
        self._stop = False

    def tell(self, name: str, progress: Progress) -> None:
        self._told.append((name, progress))

    def news(self) -> list[tuple[str, Progress]]:
        told, self._told = self._told, []
        return told

    def ask_to_stop(self) -> None:
        self._stop = True

    def should_stop(self) -> bool:
        return self._stop


def _most_at_once(nodes: list[dict[str, Any]], wanted: dict[str, int]) -> int:
    """How many jobs one machine may have to share its memory; warns if there is room for none."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    enough = [has for has in alive if has.get("GPU", 0) >= wanted["num_gpus"]]
    most = max((int(has.get("CPU", 0)) // wanted["num_cpus"] for has in enough), default=0)
    if most == 0:
        warnings.warn(
            f"no machine of the cluster has {wanted['num_cpus']} processors and "
            f"{wanted['num_gpus']} graphics cards; all jobs wait until one joins that has.",
            AlfaWarning,
            stacklevel=3,
        )
    # Each has a graphics card, and so its memory, of its own.
    return 1 if wanted["num_gpus"] else max(1, most)


def _run_on_ray(
    job: Job, device: str, num_sharing: int, before: Before, board: Any, token: str
) -> Outcome:
    import ray

    if not Path(token).exists():
        sentence = (
            f"{Path(token).parent} is not the same folder on all machines of the cluster; choose "
            "one that they share with --out."
        )
        return Outcome(failed={job.name: sentence})
    asked = [time.monotonic(), False]

    def should_stop() -> bool:
        if not asked[1] and time.monotonic() - asked[0] > _ASK:
            asked[:] = [time.monotonic(), ray.get(board.should_stop.remote())]
        return bool(asked[1])

    try:
        return run_job(
            job,
            device,
            num_sharing,
            before,
            should_stop,
            lambda told: board.tell.remote(job.name, told),
        )
    except Stopped:
        return Outcome()
