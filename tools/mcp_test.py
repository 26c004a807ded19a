#!/usr/bin/env python3
"""Asks `ringleader mcp` through the client of the Model Context Protocol's Python SDK (`pip install mcp`).

    tools/mcp_test.py target/debug/ringleader
"""

import asyncio
import pathlib
import sys
import time

from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

CASES = pathlib.Path(__file__).resolve().parent.parent / "cases"
EVIDENCE = str(CASES / "skipped-allreduce/evidence")
# Tool, arguments, what the answer holds, whether it is an error.
CALLS = [
    ("diagnose", {"paths": [EVIDENCE]}, "skipped-collective", False),
    ("findings", {"paths": [EVIDENCE]}, '"skipped-collective"', False),
    ("lines", {"paths": [EVIDENCE], "source": "nccl_vm_1347.log", "line": 426, "around": 2}, "AllReduce: opCount", False),
    ("explain", {"what": "xid 79"}, "fell off the bus", False),
    ("check", {}, " ok", False),
    ("diagnose", {"paths": ["/etc"]}, "not below the roots", True),
]


async def main(program):
    server = StdioServerParameters(command=program, args=["mcp", "--root", str(CASES)])
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert tools == {name for name, *_ in CALLS}, tools
        for name, arguments, holds, is_error in CALLS:
            start = time.time()
            answer = await session.call_tool(name, arguments)
            text = "".join(getattr(part, "text", "") for part in answer.content)
            failed = bool(getattr(answer, "is_error", getattr(answer, "isError", False)))
            assert holds in text and failed == is_error, (name, failed, text)
            assert len(text) <= 64 * 1024, (name, len(text))
            print(f"ok: {name}: {len(text)} bytes, {time.time() - start:.2f} s")


asyncio.run(main(sys.argv[1]))
