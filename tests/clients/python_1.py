"""An MCP client on version 1 of the official Python SDK, which knows the handshake alone.

It takes the road that road.mjs describes.

    $FONDACO_PYTHON_1 tests/clients/python_1.py --url URL ...
"""

import argparse
from collections.abc import AsyncIterator
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import road
from mcp import ClientSession
from mcp import McpError
from mcp import types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


class Ears:
    """Hears what the server says, and answers what it asks."""

    def __init__(self) -> None:
        self.heard = set[str]()

    async def hear(self, message: object) -> None:
        match getattr(message, "root", None):
            case types.ToolListChangedNotification():
                self.heard.add("tools")
            case types.ResourceUpdatedNotification(params=params):
                self.heard.add(str(params.uri))

    async def answer(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": road.NAME})


class Connected:
    """The SDK's session after its handshake."""

    def __init__(
        self,
        session: ClientSession,
        answer: types.InitializeResult,
        session_id: Callable[[], str | None],
        ears: Ears,
    ) -> None:
        self.session = session
        self.ears = ears
        self.answer = answer
        self.session_id = session_id

    def revision(self) -> str:
        return str(self.answer.protocolVersion)

    def tools(self) -> bool:
        return self.answer.capabilities.tools is not None

    async def page(self, cursor: str | None) -> road.Page:
        page = await self.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        return road.Page([tool.name for tool in page.tools], page.nextCursor)

    async def call(self, tool: str, arguments: dict[str, Any], progress: road.Progress | None = None) -> road.Answer:
        # The SDK keeps the id of its next request to itself.
        request = self.session._request_id
        try:
            result = await self.session.call_tool(tool, arguments, progress_callback=progress)
        except McpError as error:
            raise road.ProtocolError(error.error.code, error.error.message) from error
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.give_up(request)
            raise
        return road.Answer(result.content, result.structuredContent, result.isError)

    async def resources(self, cursor: str | None) -> road.Page:
        page = await self.session.list_resources(params=types.PaginatedRequestParams(cursor=cursor))
        return road.Page([str(entry.uri) for entry in page.resources], page.nextCursor)

    async def templates(self, cursor: str | None) -> road.Page:
        page = await self.session.list_resource_templates(params=types.PaginatedRequestParams(cursor=cursor))
        return road.Page([entry.uriTemplate for entry in page.resourceTemplates], page.nextCursor)

    async def prompts(self, cursor: str | None) -> road.Page:
        page = await self.session.list_prompts(params=types.PaginatedRequestParams(cursor=cursor))
        return road.Page([entry.name for entry in page.prompts], page.nextCursor)

    async def read(self, uri: str) -> str:
        return (await self.session.read_resource(AnyUrl(uri))).contents[0].text

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return (await self.session.get_prompt(name, arguments)).messages[0].content.text

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.session.complete(reference, {"name": argument, "value": value})).completion.values

    @asynccontextmanager
    async def listen(self, uri: str, heard: set[str]) -> AsyncIterator[None]:
        self.ears.heard = heard
        await self.session.subscribe_resource(AnyUrl(uri))
        yield
        await self.session.unsubscribe_resource(AnyUrl(uri))

    async def give_up(self, request: types.RequestId) -> None:
        """A caller that stops waiting tells the server; this SDK leaves that to its user."""
        params = types.CancelledNotificationParams(requestId=request, reason="enough")
        await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))


@asynccontextmanager
async def connect(options: argparse.Namespace) -> AsyncIterator[road.Client]:
    headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
    ears = Ears()
    async with (
        httpx.AsyncClient(headers=headers, timeout=road.STEP_SECONDS) as http_client,
        streamable_http_client(options.url, http_client=http_client) as (read, write, session_id),
        ClientSession(read, write, elicitation_callback=ears.answer, message_handler=ears.hear) as session,
    ):
        yield Connected(session, await session.initialize(), session_id, ears)


if __name__ == "__main__":
    road.take("An MCP client on version 1 of the Python SDK.", ("legacy",), connect)
