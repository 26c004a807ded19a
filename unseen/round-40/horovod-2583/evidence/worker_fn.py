settings = RayExecutor.create_settings(timeout_s=30)
executor = RayExecutor(settings, num_hosts=1, num_slots=2, use_gpu=True)
executor.start()

def train():
    hvd.init()
    print(hvd.size(), hvd.rank(), hvd.local_rank(), os.environ["HOROVOD_RANK"])
    gpus = tf.config.experimental.list_physical_devices('GPU')
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')
    ...

executor.run(train)
