"""An MCP client of 2026-07-28 on the official Python SDK.

It takes the same road as ts.mjs, which explains the options, and prints a
line per step.

    $FONDACO_PYTHON tests/clients/python.py --url URL [--token TOKEN] [--expect fixture|demo]
        [--prefix P] [--page-size N] [--direct]

Exit 0 only if every step passed.
"""

import argparse
import json
import random
import sys
import time
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp import Client
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client

REVISION = "2026-07-28"
STEP_SECONDS = 30


class Failed(Exception):
    """A step saw something else than it expected."""


def check(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


def text_of(result: mcp_types.CallToolResult) -> str:
    return "".join(getattr(block, "text", "") for block in result.content)


class Steps:
    """The steps, in the order of their names in `ORDER`; each may return a remark for its line."""

    ORDER = (
        "connect",
        "pages",
        "text",
        "structured",
        "is_error",
        "parallel",
        "progress",
        "cancel",
        "unknown_tool",
        "mirrored_header",
        "token_stays",
    )

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self.client = client
        self.options = options
        self.fixture = options.expect == "fixture"

    def named(self, tool: str) -> str:
        return self.options.prefix + tool

    async def call(self, tool: str, arguments: dict[str, Any], **how: Any) -> mcp_types.CallToolResult:
        return await self.client.call_tool(self.named(tool), arguments, **how)

    def work(self, ms: int) -> dict[str, int]:
        """What `slow` is asked for, to work this long."""
        return {"ms": ms} if self.fixture else {"steps": 10, "delay_ms": ms // 10}

    async def connect(self) -> None:
        # Mode "auto" has asked server/discover; a gateway that sends the client
        # back to the handshake shows here.
        check(self.client.protocol_version == REVISION, f"negotiated {self.client.protocol_version}")
        check(self.client.server_capabilities.tools, "server/discover advertises no tools")

    async def pages(self) -> str:
        pages: list[list[str]] = []
        cursor: str | None = None
        while len(pages) < 100:
            page = await self.client.list_tools(cursor=cursor)
            pages.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
            if cursor is None:
                break
        names = [name for page in pages for name in page]
        check(len(set(names)) == len(names), f"a name is on two pages: {names}")
        check(self.named("echo") in names, f"no {self.named('echo')} in {names}")
        if not self.options.direct:
            size = self.options.page_size
            check(all(len(page) == size for page in pages[:-1]), f"pages of {[len(page) for page in pages]}")
            check(len(pages) > 1 or len(names) <= size, f"one page only: is the gateway's page size {size}?")
            check(names == sorted(names), "the list is not in name order")
        return f"{len(names)} tools on {len(pages)} page(s)"

    async def text(self) -> None:
        result = await self.call("echo", {"text": 'héllo "wörld" \U0001f6a2\n'})
        check(text_of(result) == 'héllo "wörld" \U0001f6a2\n', f"answered {text_of(result)!r}")
        check(not result.is_error, "isError is set")

    async def structured(self) -> None:
        result = await self.call("add", {"a": 2, "b": 40})
        content = result.structured_content
        check(isinstance(content, dict) and 42 in content.values(), f"structuredContent is {content!r}")

    async def is_error(self) -> None:
        result = await (self.call("fail", {}) if self.fixture else self.call("echo", {}))
        check(result.is_error, "isError is not set")
        check(text_of(result), "the error has no text")

    async def parallel(self) -> None:
        markers = [f"marker {number} {random.random()}" for number in range(20)]
        answers: dict[str, str] = {}

        async def one(marker: str) -> None:
            answers[marker] = text_of(await self.call("echo", {"text": marker}))

        async with anyio.create_task_group() as group:
            for marker in markers:
                group.start_soon(one, marker)
        foreign = {marker: answer for marker, answer in answers.items() if marker != answer}
        check(len(answers) == 20 and not foreign, f"foreign answers: {foreign}")

    async def progress(self) -> str:
        seen: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        await self.call("slow", self.work(500), progress_callback=note)
        check(len(seen) >= 2, f"{len(seen)} progress notifications, wanted at least 2")
        check(all(a < b for a, b in zip(seen, seen[1:])), f"progress does not increase: {seen}")
        return f"{len(seen)} notifications"

    async def cancel(self) -> str:
        before = await self.cancelled_count() if self.fixture else 0
        began = time.monotonic()
        with anyio.CancelScope() as scope:

            async def give_up(progress: float, total: float | None, message: str | None) -> None:
                # Progress shows that the backend is at work, so this cannot come too early.
                scope.cancel()

            await self.call("slow", self.work(10_000), progress_callback=give_up)
        check(scope.cancelled_caught, "the call was answered before it could be cancelled")
        check(time.monotonic() - began < 8, "the call ended late")
        if not self.fixture:
            return "the demo backend keeps no count"
        deadline = time.monotonic() + 5
        while await self.cancelled_count() == before:
            check(time.monotonic() < deadline, "the backend did not notice within 5 s")
            await anyio.sleep(0.05)
        return "noticed by the backend"

    async def cancelled_count(self) -> int:
        content = (await self.call("cancelled_count", {})).structured_content
        check(isinstance(content, dict) and "count" in content, f"cancelled_count answered {content!r}")
        return content["count"]

    async def unknown_tool(self) -> str | None:
        try:
            result = await self.call("no_such_tool", {})
        except MCPError as error:
            check(error.code == -32602, f"error {error.code}: {error}")
            return None
        # The Python SDK's server answers so; a gateway knows its catalog better.
        check(self.options.direct and result.is_error, f"a result, not an error: {text_of(result)!r}")
        return "the server's own answer: isError"

    async def mirrored_header(self) -> None:
        answer = text_of(await self.call("region_lookup", {"region": "eu-wést"}))
        check("eu-wést" in answer, f"answered {answer!r}")

    async def token_stays(self) -> str | None:
        if not self.fixture:
            return "the demo backend sees no headers"
        headers = json.loads(text_of(await self.call("whoami_headers", {})))
        check(headers.get("mcp-method") == "tools/call", f"headers are {headers}")
        if self.options.direct:
            return "no gateway, nothing to keep"
        check(self.options.token, "a gateway needs --token")
        check(self.options.token not in json.dumps(headers), "the token reached the backend")
        return None


async def run(options: argparse.Namespace) -> int:
    headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
    failures = 0
    async with httpx2.AsyncClient(headers=headers, timeout=STEP_SECONDS) as http_client:
        async with Client(streamable_http_client(options.url, http_client=http_client)) as client:
            steps = Steps(client, options)
            for name in Steps.ORDER:
                try:
                    with anyio.fail_after(STEP_SECONDS):
                        remark = await getattr(steps, name)()
                    print(f"ok {name}" + (f" ({remark})" if remark else ""), flush=True)
                except Exception as error:
                    failures += 1
                    print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description="An MCP client on the Python SDK.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--token")
    parser.add_argument("--expect", choices=("fixture", "demo"), default="fixture")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--page-size", type=int)
    parser.add_argument("--direct", action="store_true")
    options = parser.parse_args()
    if options.page_size is None:
        options.page_size = 5 if options.expect == "fixture" else 500
    try:
        failures = anyio.run(run, options)
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        print(f"FAILED connect: {type(error).__name__}: {error}")
        sys.exit(1)
    print("all steps passed" if failures == 0 else f"{failures} step(s) failed")
    sys.exit(0 if failures == 0 else 1)


if __name__ == "__main__":
    main()
