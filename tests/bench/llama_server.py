"""llama-server's restore and first token: the time that `reprise-cli bench resume` is compared with.

    python3 tests/bench/llama_server.py --server llama-server --model FILE.gguf [--threads 2] [--tokens 3400] [--runs 3]

Reads a conversation of that many tokens, saves its slot, starts the server again, restores the slot and asks for the first
token of a prompt 27 tokens longer. Loading the model is not counted. Listens on the loopback address only, in a temporary
folder, and stops by itself. Prints one JSON object.
"""

import argparse
import json
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

NEW_TOKENS = 27


class Server:
    def __init__(self, args, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [args.server, "-m", args.model, "-t", str(args.threads), "-np", "1", "-c", "8192"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--slot-save-path", folder, "-dev", "none"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health").close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"{args.server} ended with {self.process.returncode}; run it by hand to see why")
                time.sleep(0.1)
        raise SystemExit(f"{args.server} does not answer")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        start = time.perf_counter()
        with urllib.request.urlopen(request) as response:
            answer = json.load(response)
        return time.perf_counter() - start, answer

    def first_token(self, tokens):
        body = {"prompt": tokens, "n_predict": 1, "cache_prompt": True, "id_slot": 0, "temperature": 0}
        return self.post("/completion", body)[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="llama-server")
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=3400)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with Server(args, folder) as server:
            words = " ".join(f"word{i % 977} of chapter {i % 89}" for i in range(args.tokens))
            tokens = server.post("/tokenize", {"content": words})[1]["tokens"]
            tokens = tokens[: args.tokens + NEW_TOKENS]
            cold = server.first_token(tokens[: args.tokens])
            server.post("/slots/0?action=save", {"filename": "slot"})
        restored = []
        for _ in range(args.runs):
            with Server(args, folder) as server:
                seconds = server.post("/slots/0?action=restore", {"filename": "slot"})[0]
                restored.append(seconds + server.first_token(tokens))
    print(
        json.dumps(
            {
                "tokens": args.tokens,
                "new_tokens": NEW_TOKENS,
                "threads": args.threads,
                "cold_ms": round(1000 * cold),
                "restore_and_first_token_ms": round(1000 * statistics.median(restored)),
            }
        )
    )


main()
