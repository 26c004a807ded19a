"""Makes nsight.sqlite, a small export in the form of Nsight Systems 2024.5 (schema 3.13)."""

import os
import sqlite3
import struct

path = os.path.join(os.path.dirname(__file__), "nsight.sqlite")
if os.path.exists(path):
    os.remove(path)
db = sqlite3.connect(path)
db.execute("PRAGMA page_size=1024")
strings = {1: "gemm<float>", 2: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3: "cudaLaunchKernel_v7000", 4: "cudaMemcpyAsync_v3020",
           5: "cudaStreamSynchronize_v3020", 6: "ncclAllReduce", 7: "step 12", 8: "x" * 3000}
pid, tid = 77, 78
thread = (pid << 24) | tid
db.executescript("""
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, cuDevice INTEGER, name TEXT, smCount INTEGER);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, -- ns
  end INTEGER NOT NULL, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER, returnValue INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER,
  domainId INTEGER, binaryData BLOB);
""")
db.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.13.2')")
db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1790857026000000000, '')")
db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H200', 132)")
db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', 0, 'n1.example')")
kernel = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?, 16, 2, 1)"
runtime = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0)"
for n in range(401):
    db.execute(runtime, (n * 10_000, n * 10_000 + 3_000, thread, n + 1, 3))
    db.execute(kernel, (n * 10_000 + 5_000, n * 10_000 + 9_000, 7, n + 1, pid << 24, 1, 1))
db.execute(runtime, (4_020_000, 4_023_000, thread, 900, 3))
db.execute(kernel, (4_030_000, 4_090_000, 20, 900, pid << 24, 2, 2))
db.execute(runtime, (4_040_000, 4_041_000, thread, 901, 4))
db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (4095000, 4099000, 0, 7, 901, ?, 4096, 2, 3, 1)", (pid << 24,))
db.execute(runtime, (4_042_000, 4_099_000, thread, 902, 5))
db.execute("INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'NCCL', NULL, ?, 9, NULL)", (thread,))
payload = struct.pack("<IIIIQQ", 9, 0, 16777216 + 5, 0, 20, 52) + struct.pack("<QQI", 0xABCDEF, 4_194_304, 0)
db.execute("INSERT INTO NVTX_EVENTS VALUES (4019000, 4024000, 59, NULL, 6, ?, 9, ?)", (thread, payload))
db.execute("INSERT INTO NVTX_EVENTS VALUES (0, 4100000, 59, NULL, 7, ?, 0, NULL)", (thread,))
db.commit()
db.execute("VACUUM")
db.close()

# The default of nsys: a launched CUDA graph is one row.
path = os.path.join(os.path.dirname(__file__), "nsight_graph.sqlite")
if os.path.exists(path):
    os.remove(path)
db = sqlite3.connect(path)
db.execute("PRAGMA page_size=1024")
db.executescript("""
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER, returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER,
  graphExecId INTEGER);
""")
db.execute("INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000')")
db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.13.2')")
for n in range(5):
    at = n * 1_000_000
    db.execute(runtime, (at, at + 30_000, thread, n + 1, 1))
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 0, 1, NULL, 7, ?, ?, 3, 4)",
               (at + 40_000, at + 990_000, n + 1, pid << 24))
db.commit()
db.execute("VACUUM")
db.close()
