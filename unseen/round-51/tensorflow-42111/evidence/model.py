bn = tf.keras.layers.experimental.SyncBatchNormalization

def net(x, training):
    a = tf.keras.layers.Conv2D(32, 3, padding="SAME")(x)
    a_bn = bn()(a, training=training)
    d = tf.keras.layers.Conv2DTranspose(32, 3, padding="SAME")(a_bn)
    d_bn = bn()(d, training=training)
    b = tf.keras.layers.Conv2D(32, 3, padding="SAME")(a_bn)
    b_bn = bn()(b, training=training)
    return tf.keras.layers.Concatenate()([a_bn, d_bn, b_bn])
