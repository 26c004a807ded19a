MODEL_PARALLEL = 1
TOTAL_WORLD_SIZE = 2
LAUNCH_ARGS = [
    f"--model-parallel-size {MODEL_PARALLEL}",
    f"--distributed-world-size {TOTAL_WORLD_SIZE}",
    "--distributed-num-procs 3",
    "--task language_modeling",
    f"--path {CHECKPOINT_FOLDER}/reshard.pt",
]
