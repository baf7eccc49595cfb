"""The tools of an MCP server as Python's stock client and converters take them. Prints one JSON text."""

import asyncio
import copy
import json
import sys
from collections.abc import Callable

from agents.strict_schema import ensure_strict_json_schema
from google.genai import _mcp_utils
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


def said(convert: Callable[[], object]) -> str:
    try:
        convert()
        return "converted"
    except Exception as error:  # whatever a converter raises is what is asked
        return f"{type(error).__name__}: {error}"[:300]


async def main(url: str, calls: list[tuple[str, dict[str, object]]]) -> None:
    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        converted = {}
        for tool, chained in zip(tools, await load_mcp_tools(session), strict=True):
            schema = tool.inputSchema
            converted[tool.name] = {
                "langchain, strict": said(lambda: convert_to_openai_tool(chained, strict=True)),
                "openai-agents, strict": said(lambda: ensure_strict_json_schema(copy.deepcopy(schema))),
                "google-genai": said(lambda: _mcp_utils.mcp_to_gemini_tool(tool)),
            }
        answers = []
        for name, arguments in calls:
            result = await session.call_tool(name, arguments)
            answers.append([bool(result.isError), result.content[0].text])
    print(json.dumps({"converted": converted, "answers": answers}))


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
