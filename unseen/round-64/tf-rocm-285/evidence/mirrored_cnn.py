dist = tf.contrib.distribute.MirroredStrategy(num_gpus=2)
config = tf.estimator.RunConfig(train_distribute=dist, model_dir='/tmp/mirrored_cnn')
estimator = tf.estimator.Estimator(model_fn=cnn_model_fn, config=config)
estimator.train(input_fn=train_input_fn, steps=400)
