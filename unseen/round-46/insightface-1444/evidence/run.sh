sudo nvidia-docker run -it --shm-size=64g -p 12581:12581 -v /home/face:/workspace arcface:torch1.6 bash
