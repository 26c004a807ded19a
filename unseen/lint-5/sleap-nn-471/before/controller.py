import json

import zmq
from lightning.pytorch.callbacks import Callback


class RemoteControl(Callback):
    """Listens to a user interface that can end the training early."""

    def __init__(self, address, topic="", poll_timeout=10):
        super().__init__()
        self.address = address
        self.topic = topic
        self.timeout = poll_timeout
        self.socket = None

    def setup(self, trainer, pl_module, stage):
        if not trainer.is_global_zero or self.socket is not None:
            return
        self.socket = zmq.Context().socket(zmq.SUB)
        self.socket.connect(self.address)
        self.socket.subscribe(self.topic)

    def _receive(self):
        if self.socket.poll(self.timeout, zmq.POLLIN):
            return json.loads(self.socket.recv_string())
        return None

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero:
            message = self._receive()
            if message is not None:
                self._handle(trainer, message)
        trainer.strategy.barrier()

    def _handle(self, trainer, message):
        command = message.get("command")
        if command == "stop":
            trainer.should_stop = True
        elif command == "note":
            print(message["text"])

    def teardown(self, trainer, pl_module, stage):
        if self.socket is not None:
            self.socket.close()
            self.socket = None
