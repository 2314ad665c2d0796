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
from mcp import types
from mcp.client.subscriptions import listen


class Connected:
    """fastmcp's client."""

    def __init__(self, client: Client[StreamableHttpTransport]) -> None:
        self.client = client
        self.heard = set[str]()

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


    async def resources(self, cursor: str | None) -> road.Page:
        page = await self.client.list_resources_mcp(cursor=cursor)
        return road.Page([entry.uri for entry in page.resources], page.next_cursor)

    async def templates(self, cursor: str | None) -> road.Page:
        page = await self.client.list_resource_templates_mcp(cursor=cursor)
        return road.Page([entry.uri_template for entry in page.resource_templates], page.next_cursor)

    async def prompts(self, cursor: str | None) -> road.Page:
        page = await self.client.list_prompts_mcp(cursor=cursor)
        return road.Page([entry.name for entry in page.prompts], page.next_cursor)

    async def read(self, uri: str) -> str:
        return (await self.client.read_resource_mcp(uri)).contents[0].text

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return (await self.client.get_prompt_mcp(name, arguments)).messages[0].content.text

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(name=prompt)
        return (await self.client.complete_mcp(reference, {"name": argument, "value": value})).completion.values

    @asynccontextmanager
    async def listen(self, uri: str, heard: set[str]) -> AsyncIterator[None]:
        self.heard = heard
        session = self.client.session
        if self.revision() == road.MODERN:
            async with listen(session, tools_list_changed=True, resource_subscriptions=[uri]):
                yield
        else:
            await session.subscribe_resource(uri)
            yield
            await session.unsubscribe_resource(uri)

    async def hear(self, message: types.ServerNotification | Exception) -> None:
        match message:
            case types.ToolListChangedNotification():
                self.heard.add("tools")
            case types.ResourceUpdatedNotification(params=params):
                self.heard.add(str(params.uri))


async def answer(message: str, response_type: object, params: object, context: object) -> dict[str, str]:
    return {"name": road.NAME}


@asynccontextmanager
async def connect(options: argparse.Namespace) -> AsyncIterator[road.Client]:
    mode = road.MODERN if options.mode == "pin" else options.mode
    transport = StreamableHttpTransport(options.url, auth=options.token)
    connected: Connected | None = None

    async def hear(message: types.ServerNotification | Exception) -> None:
        if connected:
            await connected.hear(message)

    options = {"elicitation_handler": answer, "message_handler": hear, "timeout": road.STEP_SECONDS}
    async with Client(transport, mode=mode, **options) as client:
        connected = Connected(client)
        yield connected


if __name__ == "__main__":
    road.take("An MCP client on fastmcp.", ("auto", "legacy", "pin"), connect)
