"""The client of `zoo/launch.py serve`: asks it to fork and receives exit codes."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Server:
    def __init__(self, torch):
        command = [sys.executable, str(HERE / "launch.py"), "serve", *([] if torch else ["--no-torch"])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.changed = threading.Condition()
        self.pids, self.codes, self.n_asked = {}, {}, 0
        first = self.process.stdout.readline()
        if not first:
            raise RuntimeError("the fork server did not start")
        self.said = json.loads(first)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            said = json.loads(line)
            with self.changed:
                if "id" in said:
                    self.pids[said["id"]] = said["pid"]
                elif "exited" in said:
                    self.codes[said["exited"]] = said["code"]
                self.changed.notify_all()

    def start(self, **request):
        """The pid of the forked process."""
        with self.changed:
            self.n_asked += 1
            number = self.n_asked
            os.write(self.process.stdin.fileno(), (json.dumps({"id": number, **request}) + "\n").encode())
            if not self.changed.wait_for(lambda: number in self.pids, timeout=30):
                raise RuntimeError("the fork server does not answer")
            return self.pids.pop(number)

    def wait(self, pid, seconds):
        """Its exit code; None if it is still running."""
        with self.changed:
            self.changed.wait_for(lambda: pid in self.codes, timeout=max(0.0, seconds))
            return self.codes.get(pid)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
