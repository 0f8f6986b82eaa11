"""Two replicas of `kipp serve` behind SMG, as docs/scale-out.md shows them: `replicas.py KIPP`."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import checks
from checks import same

[kipp] = sys.argv[1:]
CHAT = "/v1/chat/completions"
# For a server to start, or to end once it was told to.
PATIENCE_SECONDS = 60
LOAD_THREADS = 6
# Of the load, before one replica is told to end, and after.
REQUESTS_BEFORE, REQUESTS_AFTER = 20, 60


def request(address, path, body=None):
    """Status and body; an answer that breaks off is an error."""
    connection = http.client.HTTPConnection("127.0.0.1", address, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        headers = {"content-type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def ask(port, text, **fields):
    message = {"role": "user", "content": text}
    body = {"model": "kipp-tiny", "messages": [message], "max_tokens": 24, "temperature": 0, "seed": 1} | fields
    return request(port, CHAT, body)


class Program:
    """A server in a process, its log in a file."""

    def __init__(self, line, folder):
        self.log = open(Path(folder, f"{time.monotonic_ns()}.log"), "w+")
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Its exit code, once it has ended in peace."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


class Replica(Program):
    def __init__(self, folder, *flags):
        super().__init__([kipp, "serve", "--port", "0", *flags], folder)
        # It is printed once the model is loaded.
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.rsplit(":", 1)[1])

    def count(self, status):
        """Chats that it answered with this status."""
        _, text = request(self.port, "/metrics")
        line = f'kipp_requests_total{{endpoint="{CHAT}",status="{status}"}} '
        return sum(int(found.removeprefix(line)) for found in text.splitlines() if found.startswith(line))

    def metric(self, name):
        _, text = request(self.port, "/metrics")
        return int(re.search(rf"^{name} (\d+)$", text, re.M)[1])


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Gateway(Program):
    def __init__(self, folder, replicas):
        self.port = free_port()
        line = [sys.executable, "-m", "smg", "launch", "--policy", "cache_aware", "--worker-urls"]
        line += [replica.url for replica in replicas]
        line += ["--host", "127.0.0.1", "--port", str(self.port)]
        line += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        line += ["--health-check-interval-secs", "2", "--history-backend", "none"]
        super().__init__(line, folder)
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        end = time.monotonic() + PATIENCE_SECONDS
        while self.ready() < len(replicas):
            if time.monotonic() > end or self.process.poll() is not None:
                self.log.seek(0)
                raise RuntimeError(f"SMG has not taken its workers:\n{self.log.read()}")
            time.sleep(0.1)

    def ready(self):
        try:
            _, text = request(self.port, "/workers")
        except OSError:
            return 0
        return sum(worker["status"] == "ready" for worker in json.loads(text)["workers"])


@contextlib.contextmanager
def cluster(*flags_of_replicas):
    """Replicas with these flags, and a gateway before them."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        replicas = []
        for flags in flags_of_replicas:
            replicas.append(Replica(folder, *flags))
            running.callback(replicas[-1].kill)
        gateway = Gateway(folder, replicas)
        running.callback(gateway.kill)
        yield gateway, *replicas


def a_conversation_stays_on_one_replica():
    with cluster([], []) as (gateway, *replicas):
        homes = []
        for name in ["Lily", "Tom", "Mia", "Sam", "Ben", "Sue"]:
            story, turns = f"{name} went out. " + f"{name} saw a dog and a cat by the big tree. " * 12, []
            for turn in range(4):
                before = [replica.count(200) for replica in replicas]
                status, text = ask(gateway.port, story)
                same(status, 200)
                after = [replica.count(200) for replica in replicas]
                turns.append([now - then for now, then in zip(after, before)].index(1))
                story += f" And then, for the {turn}th time, {name} ran home."
            assert len(set(turns)) == 1, f"{name}'s turns went to {turns}"
            homes.append(turns[0])
        reused = [replica.metric("kipp_prefix_tokens_reused_total") for replica in replicas]
        print(f"   conversations by replica: {homes}, prompt tokens reused: {reused}")
        same(set(homes), {0, 1})
        assert all(tokens > 0 for tokens in reused), reused


def chunks(text):
    """What a stream says; the fields that differ between any two answers are left out."""
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    same(events.pop(), "[DONE]")
    varying = {"id", "created", "timings"}
    return [{key: value for key, value in json.loads(event).items() if key not in varying} for event in events]


def streams_are_those_of_a_replica():
    with cluster([], []) as (gateway, replica, other):
        for text in ["Tell me a story about a dog.", "What did the cat see?"]:
            for fields in [{}, {"logprobs": True, "top_logprobs": 2}, {"stream_options": {"include_usage": True}}]:
                through, direct = [
                    chunks(ask(port, text, stream=True, cache_salt=f"{port}{fields}", **fields)[1])
                    for port in (gateway.port, replica.port)
                ]
                assert len(through) > 3, through
                same(through, direct)


def is_whole(status, text):
    """Whether an answer, streamed or not, came to its end."""
    if status != 200:
        return False
    if text.startswith("data: "):
        return text.endswith("data: [DONE]\n\n") and '"error"' not in text
    return json.loads(text)["choices"][0]["finish_reason"] in ("stop", "length")


def a_replica_that_ends_loses_no_request():
    with cluster([], []) as (gateway, leaving, staying):
        done, lost, told = [], [], threading.Event()

        def load(n):
            try:
                # Texts that begin differently, so that both replicas get some.
                answer = ask(gateway.port, f"{n} dogs and a cat.", stream=n % 2 == 0, max_tokens=64)
            except (OSError, http.client.HTTPException) as error:
                answer = (0, repr(error))
            (done if is_whole(*answer) else lost).append(answer)
            if len(done) + len(lost) == REQUESTS_BEFORE:
                told.set()

        with ThreadPoolExecutor(LOAD_THREADS) as pool:
            pool.map(load, range(REQUESTS_BEFORE + REQUESTS_AFTER))
            told.wait(PATIENCE_SECONDS)
            while leaving.metric("kipp_requests_running") == 0:
                time.sleep(0.005)
            served = leaving.count(200)
            code = leaving.end()
        same((code, lost), (0, []))
        by_other = staying.count(200)
        print(f"   {len(done)} answers: {served} by the replica before it was told to end, "
              f"{len(done) - served - by_other} after, {by_other} by the other")
        assert served > 0 and by_other > 0


def a_full_replica_is_relieved_by_the_other():
    with cluster(["--max-queue", "0"], []) as (gateway, full, other):
        for n in range(12):
            status, text = ask(gateway.port, f"Story {n}: " + f"{n} dogs. " * 30, stream=n % 2 == 0)
            assert is_whole(status, text), (status, text)
        refused = full.count(429)
        print(f"   12 answers, {refused} of them refused by the full replica first")
        assert refused > 0
        same((full.count(200), other.count(200)), (0, 12))


checks.run([
    a_conversation_stays_on_one_replica,
    streams_are_those_of_a_replica,
    a_replica_that_ends_loses_no_request,
    a_full_replica_is_relieved_by_the_other,
])
