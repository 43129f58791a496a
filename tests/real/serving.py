"""One engine on this machine, for as long as a `with` lasts."""
import contextlib, http.client, json, os, signal, socket, subprocess, sys, time, urllib.request

# A script that is told to end leaves its `with`, which ends the engine.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

# The process groups of engines that run now.
running = set()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url):
    return json.load(urllib.request.urlopen(url, timeout=2))


def serves_a_model(url):
    """A frontend of Dynamo is healthy before it serves a model."""
    urllib.request.urlopen(f"{url}/health", timeout=2).read()
    return bool(get(f"{url}/v1/models")["data"])


@contextlib.contextmanager
def serving(command, port, log, environment=None, patience=900.0, ready=serves_a_model, pinned=None):
    """Gives the address of `command` as soon as it is `ready`, and ends it with all its processes afterwards.

    RuntimeError: it ended before, or was not ready within `patience` seconds. `pinned` runs in the new process before the command does.
    """
    engine = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=pinned)
    running.add(engine.pid)
    try:
        url, give_up = f"http://127.0.0.1:{port}", time.monotonic() + patience
        while not is_ready(url, ready):
            if engine.poll() is not None or time.monotonic() > give_up:
                why = f"was not ready within {patience:.0f} s" if engine.poll() is None else f"ended with code {engine.poll()} before it was ready"
                raise RuntimeError(f"the engine {why}: {' '.join(command)}; its output is in {log.name}")
            time.sleep(0.5)
        yield url
    finally:
        end(engine)
        running.discard(engine.pid)


def is_ready(url, ready):
    try:
        return ready(url)
    except (OSError, ValueError, http.client.HTTPException):
        return False


def end(engine):
    """Tells the group of processes to end, waits 30 s for the engine, and kills what is left of the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(engine.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.wait(30)
        os.killpg(engine.pid, signal.SIGKILL)
    engine.wait()
