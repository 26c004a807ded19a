import csv
import os

import sentencepiece as spm

from tok.dist import run_on_main


class BpeTokenizer:
    """Trains a BPE model once and loads it on every process."""

    def __init__(self, model_dir, vocab_size, train_csv, column="text"):
        self.model_dir = model_dir
        self.vocab_size = vocab_size
        self.train_csv = train_csv
        self.column = column
        self.prefix = os.path.join(model_dir, f"{vocab_size}_bpe")
        self.text_file = os.path.join(model_dir, "train.txt")

        run_on_main(self._prepare)
        self.sp = spm.SentencePieceProcessor()
        self.sp.load(self.prefix + ".model")

    def _prepare(self):
        if os.path.isfile(self.prefix + ".model"):
            return
        if not os.path.isfile(self.text_file):
            self._dump_text()
        self._train()

    def _dump_text(self):
        os.makedirs(self.model_dir, exist_ok=True)
        with open(self.train_csv, newline="") as src, open(self.text_file, "w") as out:
            for row in csv.DictReader(src):
                out.write(row[self.column] + "\n")

    def _train(self):
        spm.SentencePieceTrainer.train(
            f"--input={self.text_file} --model_prefix={self.prefix} "
            f"--model_type=bpe --vocab_size={self.vocab_size}"
        )
