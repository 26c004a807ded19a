import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Optional


@dataclass
class TrainConfig:
    job_name: str = "policy"
    output_dir: Optional[Path] = None
    steps: int = 10000
    save_freq: int = 1000
    resume: bool = False

    def validate(self):
        if self.resume:
            if self.output_dir is None:
                raise ValueError("to resume, give the output_dir")
            return
        if self.output_dir is None:
            now = dt.datetime.now()
            self.output_dir = Path("outputs") / f"{now:%Y-%m-%d}/{now:%H-%M-%S}_{self.job_name}"
