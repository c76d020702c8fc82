"""Watches the processes that try inputs: for what they say, for their death, and for their silence."""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sawlog.testing.fuzz.findings import FindingLog
from sawlog.testing.fuzz.inputs import FuzzInputs, find_complaints
from sawlog.testing.sample import make_scratch, place_sample

_TICK_SECONDS = 0.2
"""Seconds after which it is seen whether it is time to end."""


@dataclass
class ProcessWatch:
    """A chain of processes, each starting after the input that ended the last.

    Attributes:
        name: The class of laws.
        seed: The seed.
        inputs: The inputs.
        log: Where findings go.
        step: How many processes share the inputs.
        silence: Seconds that one input may take.
        seconds: How long to try, from when the first process is ready.
        stop: Set when it is to end before.
        starting: Seconds that a process may take to begin, and for a sample as it is, which compiles everything.
    """

    name: str
    seed: str
    inputs: FuzzInputs
    log: FindingLog
    step: int
    silence: float
    seconds: float
    stop: threading.Event
    starting: float = 600.0
    until: float = field(default=math.inf, init=False)
    tried: int = field(default=0, init=False)

    def run(self, first: int) -> None:
        """Watch until it is time to end."""
        number = first
        while self.has_time():
            with make_scratch() as scratch:  # what a process that is ended leaves goes with it
                number = self._watch(number, scratch)

    def has_time(self) -> bool:
        """Return whether there is time for more."""
        return time.monotonic() < self.until and not self.stop.is_set()

    def _watch(self, first: int, scratch: str) -> int:
        """Watch one process to its end, which has a directory for samples; return the input to go on with."""
        command = [sys.executable, "-m", "sawlog.testing.fuzz.worker", self.name, self.seed, str(first), str(self.step)]
        # In a session of its own: an interrupt of the terminal is for the watch, which ends it.
        pipe, environment = subprocess.PIPE, {**os.environ, "TMPDIR": scratch}
        process = subprocess.Popen(  # noqa: S603
            command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=environment
        )
        messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        errors: list[str] = []
        listeners = [
            threading.Thread(target=_listen, args=(process, messages)),
            threading.Thread(target=_collect_last_lines, args=(process, errors)),
        ]
        for listener in listeners:
            listener.start()
        number, patience, is_made = first - self.step, self.starting, False
        try:
            silent_since = time.monotonic()
            while self.has_time():
                try:
                    message = messages.get(timeout=min(_TICK_SECONDS, patience))
                except queue.Empty:
                    if time.monotonic() - silent_since < patience:
                        continue
                    message = {"law": "hang", "text": f"nothing for {patience:.0f} s"}
                if message is None:
                    code = process.wait()
                    manner = f"signal {-code}" if code < 0 else f"exit code {code}"
                    message = {"law": "crash", "text": f"the process died: {manner}: {' | '.join(errors)}"}
                silent_since = time.monotonic()
                if "law" in message:
                    if number < first:
                        raise RuntimeError(f"{' '.join(command)}: {message['text']}")
                    self._note_finding(number, message["law"], message["text"], is_made=is_made)
                    break
                if "sample" in message:
                    continue
                patience = self.silence
                if "ready" in message:
                    self.until = min(self.until, time.monotonic() + self.seconds)
                    continue
                is_made = "number" in message
                number = message["number"] if is_made else message["making"]
                if "found" in message:
                    self.tried += 1
                    for law, text in message["found"]:
                        self._note_finding(number, law, text)
        finally:
            process.kill()
            for listener in listeners:
                listener.join()
            process.wait()
        return number + self.step

    def _note_finding(self, number: int, law: str, text: str, *, is_made: bool = True) -> None:
        if self.log.add(self.inputs, number, law, text, is_made=is_made):
            print(f"{self.name} input {number}: {law}: {text[:300]}", flush=True)  # noqa: T201


def _listen(process: subprocess.Popen[str], messages: queue.Queue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if line.startswith("{") and line.endswith("\n"):
                messages.put(json.loads(line))
    messages.put(None)


def _collect_last_lines(process: subprocess.Popen[str], last_lines: list[str]) -> None:
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            last_lines.append(line.strip())
            del last_lines[:-3]


def repeat(name: str, seed: str, number: int) -> int:
    """Try one input here, and say what it breaks."""
    inputs = FuzzInputs.of(name, seed)
    sample, mutation, law = inputs.make(number)
    print(f"sample {sample.name}: {mutation.label}; {law[0]}")  # noqa: T201
    with place_sample(sample, mutation) as subject:
        broken_laws = find_complaints(inputs.laws, subject, law)
    for law_name, text in broken_laws:
        print(f"{law_name}: {text}")  # noqa: T201
    return 1 if broken_laws else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer: 0 when no law was broken, 1 when some was."""
    parser = argparse.ArgumentParser("python -m sawlog.testing.fuzz", description=__doc__)
    parser.add_argument("laws", nargs="+", metavar="MODULE:CLASS", help="classes of laws, which have samples")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, for each of them")
    parser.add_argument("--seed", default="1", help="any text: the same inputs for the same text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--every", type=float, default=5.0, help="minutes between two lines that say how far it is")
    parser.add_argument("--silence", type=float, default=60.0, help="seconds that one input may take")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="where inputs are kept that break laws")
    parser.add_argument("--number", type=int, help="try only this input, here")
    settings = parser.parse_args(arguments)
    if settings.number is not None:
        return max(repeat(name, settings.seed, settings.number) for name in settings.laws)
    stop = threading.Event()
    before = {
        signal_number: signal.signal(signal_number, lambda *_: stop.set())
        for signal_number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        broken = sum(_run_fuzzer(name, settings, stop) for name in settings.laws if not stop.is_set())
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
    return 1 if broken else 0


def _run_fuzzer(name: str, settings: argparse.Namespace, stop: threading.Event) -> int:
    """Try one class of laws until its time is over, or it is to stop; return how many causes were found."""
    inputs = FuzzInputs.of(name, settings.seed)
    log = FindingLog(settings.out / inputs.samples[0].format, name, settings.seed)
    watches = [
        ProcessWatch(name, settings.seed, inputs, log, settings.jobs, settings.silence, settings.minutes * 60, stop)
        for _ in range(settings.jobs)
    ]
    with ThreadPoolExecutor(settings.jobs) as pool:
        running = [pool.submit(watch.run, n) for n, watch in enumerate(watches)]
        reported = time.monotonic()
        while not all(future.done() for future in running):
            wait(running, timeout=_TICK_SECONDS)
            if time.monotonic() - reported > settings.every * 60:
                reported = time.monotonic()
                _report(name, watches, log)
    _report(name, watches, log)
    for cause, count in log.causes.most_common():
        print(f"  {count:6} {cause}", flush=True)  # noqa: T201
    for future in running:
        future.result()
    return len(log.causes)


def _report(name: str, watches: Sequence[ProcessWatch], log: FindingLog) -> None:
    tried = sum(watch.tried for watch in watches)
    summary = f"{sum(log.causes.values())} complaints of {len(log.causes)} kinds"
    print(f"{name}: {tried} inputs, {summary}", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
