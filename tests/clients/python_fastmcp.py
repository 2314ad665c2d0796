"""An MCP client on fastmcp, of either era.

It takes the road that road.mjs describes.

    $FONDACO_PYTHON_FASTMCP tests/clients/python_fastmcp.py --url URL [--mode auto|legacy|pin] ...
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import road
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp import MCPError


class Connected:
    """fastmcp's client."""

    def __init__(self, client: Client[StreamableHttpTransport]) -> None:
        self.client = client

    def revision(self) -> str:
        return self.client.protocol_version

    def tools(self) -> bool:
        return self.client.server_capabilities.tools is not None

    def session_id(self) -> str | None:
        return self.client.transport.get_session_id()

    async def page(self, cursor: str | None) -> road.Page:
        page = await self.client.list_tools_mcp(cursor=cursor)
        return road.Page([tool.name for tool in page.tools], page.next_cursor)

    async def call(self, tool: str, arguments: dict[str, Any], progress: road.Progress | None = None) -> road.Answer:
        try:
            result = await self.client.call_tool(tool, arguments, progress_handler=progress, raise_on_error=False)
        except MCPError as error:
            raise road.ProtocolError(error.code, str(error)) from error
        return road.Answer(result.content, result.structured_content, result.is_error)


@asynccontextmanager
async def connect(options: argparse.Namespace) -> AsyncIterator[road.Client]:
    mode = road.MODERN if options.mode == "pin" else options.mode
    transport = StreamableHttpTransport(options.url, auth=options.token)
    async with Client(transport, mode=mode, timeout=road.STEP_SECONDS) as client:
        yield Connected(client)


if __name__ == "__main__":
    road.take("An MCP client on fastmcp.", ("auto", "legacy", "pin"), connect)
