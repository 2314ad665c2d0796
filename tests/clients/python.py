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
from mcp import types
from mcp.client.streamable_http import streamable_http_client


class Connected:
    """The SDK's client, and the session that its responses have named."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.session: str | None = None
        self.heard = set[str]()

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

    async def resources(self, cursor: str | None) -> road.Page:
        page = await self.client.list_resources(cursor=cursor)
        return road.Page([entry.uri for entry in page.resources], page.next_cursor)

    async def templates(self, cursor: str | None) -> road.Page:
        page = await self.client.list_resource_templates(cursor=cursor)
        return road.Page([entry.uri_template for entry in page.resource_templates], page.next_cursor)

    async def prompts(self, cursor: str | None) -> road.Page:
        page = await self.client.list_prompts(cursor=cursor)
        return road.Page([entry.name for entry in page.prompts], page.next_cursor)

    async def read(self, uri: str) -> str:
        return (await self.client.read_resource(uri)).contents[0].text

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return (await self.client.get_prompt(name, arguments)).messages[0].content.text

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(name=prompt)
        return (await self.client.complete(reference, {"name": argument, "value": value})).completion.values

    @asynccontextmanager
    async def listen(self, uri: str, heard: set[str]) -> AsyncIterator[None]:
        self.heard = heard
        if self.revision() == road.MODERN:
            async with self.client.listen(tools_list_changed=True, resource_subscriptions=[uri]):
                yield
        else:
            await self.client.subscribe_resource(uri)
            yield
            await self.client.unsubscribe_resource(uri)

    async def hear(self, message: types.ServerNotification | Exception) -> None:
        match message:
            case types.ToolListChangedNotification():
                self.heard.add("tools")
            case types.ResourceUpdatedNotification(params=params):
                self.heard.add(str(params.uri))

    async def note(self, response: httpx2.Response) -> None:
        self.session = response.headers.get("mcp-session-id", self.session)


async def answer(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": road.NAME})


@asynccontextmanager
async def connect(options: argparse.Namespace) -> AsyncIterator[road.Client]:
    headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
    mode = road.MODERN if options.mode == "pin" else options.mode
    async with httpx2.AsyncClient(headers=headers, timeout=road.STEP_SECONDS) as http_client:
        transport = streamable_http_client(options.url, http_client=http_client)
        connected = Connected(Client(transport, mode=mode, elicitation_callback=answer))
        connected.client.message_handler = connected.hear
        http_client.event_hooks["response"].append(connected.note)
        async with connected.client:
            yield connected


if __name__ == "__main__":
    road.take("An MCP client on the Python SDK.", ("auto", "legacy", "pin"), connect)
