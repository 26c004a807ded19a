docker run -d --name xinf-worker -e XINFERENCE_MODEL_SRC=modelscope \
  -v /data/modelscope:/root/.cache/modelscope --network host --gpus all \
  xprobe/xinference:v1.6.1 xinference-worker -e "http://10.30.7.20:9997" -H 10.30.7.21
