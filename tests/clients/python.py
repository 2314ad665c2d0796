"""An MCP client on the official Python SDK, of either era.

It takes the road that road.mjs describes.

    $FONDACO_PYTHON tests/clients/python.py --url URL [--mode auto|legacy|pin] ...
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import road
from mcp import Client
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client


class Connected:
    """The SDK's client, and the session that its responses have named."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.session: str | None = None

    def revision(self) -> str:
        return self.client.protocol_version

    def tools(self) -> bool:
        return self.client.server_capabilities.tools is not None

    def session_id(self) -> str | None:
        return self.session

    async def page(self, cursor: str | None) -> road.Page:
        page = await self.client.list_tools(cursor=cursor)
        return road.Page([tool.name for tool in page.tools], page.next_cursor)

    async def call(self, tool: str, arguments: dict[str, Any], progress: road.Progress | None = None) -> road.Answer:
        try:
            result = await self.client.call_tool(tool, arguments, progress_callback=progress)
        except MCPError as error:
            raise road.ProtocolError(error.code, str(error)) from error
        return road.Answer(result.content, result.structured_content, result.is_error)

    async def note(self, response: httpx2.Response) -> None:
        self.session = response.headers.get("mcp-session-id", self.session)


@asynccontextmanager
async def connect(options: argparse.Namespace) -> AsyncIterator[road.Client]:
    headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
    mode = road.MODERN if options.mode == "pin" else options.mode
    async with httpx2.AsyncClient(headers=headers, timeout=road.STEP_SECONDS) as http_client:
        connected = Connected(Client(streamable_http_client(options.url, http_client=http_client), mode=mode))
        http_client.event_hooks["response"].append(connected.note)
        async with connected.client:
            yield connected


if __name__ == "__main__":
    road.take("An MCP client on the Python SDK.", ("auto", "legacy", "pin"), connect)
