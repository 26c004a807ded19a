import sys

import numpy as np

from field import AdvDiff, Field, comm


def write(field, name, step):
    np.save(f"{name}_{step:05d}_{comm.rank}.npy", field.values)
    comm.Barrier()


def main(name, steps):
    rng = np.random.default_rng(comm.rank)
    temperature = Field("T", rng.random(1000))
    adv_diff = AdvDiff(temperature, diffusivity=1.0, spacing=0.01)

    for step in range(steps):
        dt = adv_diff.estimate_dt()
        adv_diff.solve(timestep=dt)

        if comm.rank == 0:
            print(f"step {step}, dt {dt}")
            print(temperature.stats())
            print(adv_diff.history.stats())

        if step % 10 == 0:
            write(temperature, name, step)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
