docker run -d \
  -e XINFERENCE_MODEL_SRC=modelscope \
  -v /data/xinf/.xinference:/root/.xinference \
  -v /data/xinf/.cache/modelscope:/root/.cache/modelscope \
  -p 9997:9997 --gpus all --name xinference \
  xprobe/xinference:v0.12.0 xinference-local -H 0.0.0.0 --log-level debug
