# 10.28.14.35 and 10.28.14.36, 32 cores each, no GPU
export DMLC_NUM_WORKER=2
export DMLC_NUM_SERVER=4
export DMLC_PS_ROOT_URI=10.28.14.35
export DMLC_PS_ROOT_PORT=8721
for i in 0 1; do
  DMLC_ROLE=server python /usr/local/byteps/launcher/launch.py &
done
wait
