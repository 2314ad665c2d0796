"""The road that every Python client of this folder takes, as road.mjs describes it.

The steps, their order, their lines and the options are the same. A client is
a `Client` here; how it is made differs from SDK to SDK, and so do its names.

Exit 0 only if no step failed.
"""

import argparse
import json
import random
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any
from typing import NamedTuple
from typing import Protocol

import anyio

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
REVISIONS = {"pin": [MODERN], "auto": [MODERN, HANDSHAKE], "legacy": [HANDSHAKE]}
STEP_SECONDS = 30
# The name that a client gives who is asked for one.
NAME = "Ada"

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Failed(Exception):
    """A step saw something else than it expected."""


class ProtocolError(Exception):
    """The server answered with an error of this code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


class Documents(NamedTuple):
    """What is there beside tools, and what is seen of it."""

    resource: str
    resource_says: str
    template: str
    made: str
    made_says: str
    prompt: str
    arguments: dict[str, str]
    prompt_says: str
    completed: tuple[str, str, str]


FIXTURE = Documents(
    resource="test://static-text",
    resource_says="static text resource",
    template="test://template/{id}/data",
    made="test://template/n7/data",
    made_says="n7",
    prompt="test_prompt_with_arguments",
    arguments={"arg1": "hé", "arg2": "b"},
    prompt_says="hé",
    completed=("arg1", "te", "testing"),
)
WATCHED = "test://watched-resource"
DEMO = Documents(
    resource="demo://note/1",
    resource_says="",
    template="demo://note/{id}",
    made="demo://note/2",
    made_says="",
    prompt="greet",
    arguments={"name": "Hédi"},
    prompt_says="Hédi",
    completed=("name", "A", "Ada"),
)


class Answer(NamedTuple):
    """What a tool answered."""

    content: list[Any]
    structured: Any
    is_error: bool

    @property
    def text(self) -> str:
        return "".join(getattr(block, "text", "") for block in self.content)


class Page(NamedTuple):
    """One page of a list: names, URIs or templates."""

    names: list[str]
    cursor: str | None


class Client(Protocol):
    """One connected client, whichever SDK it is on."""

    def revision(self) -> str:
        """The negotiated revision."""

    def tools(self) -> bool:
        """Whether the server has advertised tools, as far as the client has asked."""

    def session_id(self) -> str | None:
        """The session, if there is one."""

    async def page(self, cursor: str | None) -> Page:
        """Asks for one page of tools."""

    async def call(self, tool: str, arguments: dict[str, Any], progress: Progress | None = None) -> Answer:
        """Calls a tool; raises `ProtocolError`. Cancelling its scope cancels the call."""

    async def resources(self, cursor: str | None) -> Page:
        """Asks for one page of resources."""

    async def templates(self, cursor: str | None) -> Page:
        """Asks for one page of resource templates."""

    async def prompts(self, cursor: str | None) -> Page:
        """Asks for one page of prompts."""

    async def read(self, uri: str) -> str:
        """Reads a text."""

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        """Gets a prompt's text."""

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        """Completes a prompt's argument."""

    def listen(self, uri: str, heard: set[str]) -> AbstractAsyncContextManager[None]:
        """Meanwhile `heard` gets `tools` and the URI as the server tells of a change of either."""


class Backend(NamedTuple):
    """Whose tools are called: the prefix of their names, and how the gateway speaks to it."""

    prefix: str
    era: str


def check(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


class Road:
    """The steps; each may return a remark for its line."""

    # Once, then for every backend, then once.
    FIRST = ("connect", "session", "pages")
    CALLS = ("text", "structured", "is_error", "parallel", "progress", "cancel", "mirrored_header", "token_stays")
    EACH = (*CALLS, "read", "templates", "prompts", "completion", "elicitation", "listen")
    LAST = ("unknown_tool",)

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self.client = client
        self.options = options
        self.fixture = options.expect == "fixture"
        self.documents = FIXTURE if self.fixture else DEMO
        self.backends = [
            Backend(prefix, era)
            for prefix, era in zip(options.prefix, options.backend + ["modern"] * len(options.prefix))
        ]
        self.backend = self.backends[0]

    async def call(self, tool: str, arguments: dict[str, Any], progress: Progress | None = None) -> Answer:
        return await self.client.call(self.backend.prefix + tool, arguments, progress)

    def uri(self, own: str) -> str:
        """What a backend's URI becomes: its prefix is its name and `_`."""
        return f"{self.backend.prefix.removesuffix('_')}+{own}" if self.backend.prefix else own

    def modern(self) -> bool:
        return self.client.revision() == MODERN

    def work(self, ms: int) -> dict[str, int]:
        """What `slow` is asked for, to work this long."""
        return {"ms": ms} if self.fixture else {"steps": 10, "delay_ms": ms // 10}

    async def connect(self) -> str:
        revision = self.client.revision()
        check(revision in REVISIONS[self.options.mode], f"negotiated {revision}")
        if self.options.mode == "pin":
            return f"{revision}, without asking"
        check(self.client.tools(), "no tools are advertised")
        return revision

    async def session(self) -> str | None:
        session = self.client.session_id()
        if self.modern():
            check(session is None, f"a session in {MODERN}")
            return f"none in {MODERN}"
        if self.options.direct and session is None:
            return "the server keeps none"
        check(re.fullmatch(r"[\x21-\x7e]+", session or ""), f"the session id is {session!r}")
        return None

    async def pages(self) -> str:
        pages: list[list[str]] = []
        cursor: str | None = None
        while len(pages) < 100:
            names, cursor = await self.client.page(cursor)
            pages.append(names)
            if cursor is None:
                break
        names = [name for page in pages for name in page]
        check(len(set(names)) == len(names), f"a name is on two pages: {names}")
        for backend in self.backends:
            check(f"{backend.prefix}echo" in names, f"no {backend.prefix}echo in {names}")
        if not self.options.direct:
            size = self.options.page_size
            check(all(len(page) == size for page in pages[:-1]), f"pages of {[len(page) for page in pages]}")
            check(len(pages) > 1 or len(names) <= size, f"one page only: is the gateway's page size {size}?")
            check(names == sorted(names), "the list is not in name order")
        return f"{len(names)} tools on {len(pages)} page(s)"

    async def text(self) -> None:
        answer = await self.call("echo", {"text": 'héllo "wörld" \U0001f6a2\n'})
        check(answer.text == 'héllo "wörld" \U0001f6a2\n', f"answered {answer.text!r}")
        check(not answer.is_error, "isError is set")

    async def structured(self) -> None:
        content = (await self.call("add", {"a": 2, "b": 40})).structured
        check(isinstance(content, dict) and 42 in content.values(), f"structuredContent is {content!r}")

    async def is_error(self) -> None:
        answer = await (self.call("fail", {}) if self.fixture else self.call("echo", {}))
        check(answer.is_error, "isError is not set")
        check(answer.text, "the error has no text")

    async def parallel(self) -> None:
        markers = [f"marker {number} {random.random()}" for number in range(20)]
        answers: dict[str, str] = {}

        async def one(marker: str) -> None:
            answers[marker] = (await self.call("echo", {"text": marker})).text

        async with anyio.create_task_group() as group:
            for marker in markers:
                group.start_soon(one, marker)
        foreign = {marker: answer for marker, answer in answers.items() if marker != answer}
        check(len(answers) == 20 and not foreign, f"foreign answers: {foreign}")

    async def progress(self) -> str:
        seen: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        await self.call("slow", self.work(500), note)
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

            await self.call("slow", self.work(10_000), give_up)
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
        content = (await self.call("cancelled_count", {})).structured
        check(isinstance(content, dict) and "count" in content, f"cancelled_count answered {content!r}")
        return content["count"]

    async def mirrored_header(self) -> None:
        answer = await self.call("region_lookup", {"region": "eu-wést"})
        check("eu-wést" in answer.text, f"answered {answer.text!r}")

    async def token_stays(self) -> str | None:
        if not self.fixture:
            return "the demo backend sees no headers"
        headers = json.loads((await self.call("whoami_headers", {})).text)
        modern = self.modern() if self.options.direct else self.backend.era == "modern"
        check(headers.get("mcp-method") == ("tools/call" if modern else None), f"headers are {headers}")
        check(headers.get("mcp-protocol-version") == (MODERN if modern else HANDSHAKE), f"headers are {headers}")
        if self.options.direct:
            return "no gateway, nothing to keep"
        check(("mcp-session-id" in headers) == (not modern), f"headers are {headers}")
        check(self.options.token, "a gateway needs --token")
        check(self.options.token not in json.dumps(headers), "the token reached the backend")
        return None

    async def read(self) -> str:
        names = await every(self.client.resources)
        uri = self.uri(self.documents.resource)
        check(uri in names, f"no {uri} in {names}")
        text = await self.client.read(uri)
        check(self.documents.resource_says in text, f"it says {text!r}")
        return f"{len(names)} resources"

    async def templates(self) -> None:
        names = await every(self.client.templates)
        check(self.uri(self.documents.template) in names, f"no {self.documents.template} in {names}")
        text = await self.client.read(self.uri(self.documents.made))
        check(self.documents.made_says in text, f"it says {text!r}")

    async def prompts(self) -> str:
        names = await every(self.client.prompts)
        name = self.backend.prefix + self.documents.prompt
        check(name in names, f"no {name} in {names}")
        text = await self.client.prompt(name, self.documents.arguments)
        check(self.documents.prompt_says in text, f"it says {text!r}")
        return f"{len(names)} prompts"

    async def completion(self) -> None:
        argument, value, wanted = self.documents.completed
        found = await self.client.complete(self.backend.prefix + self.documents.prompt, argument, value)
        check(wanted in found, f"no {wanted} in {found}")

    async def elicitation(self) -> str:
        if not self.fixture:
            return "the demo backend does not ask for names"
        answer = await self.call("ask_name", {})
        check(answer.text == f"Hello, {NAME}!", f"answered {answer.text!r}")
        return "by a second round" if self.modern() else "by a request in the session"

    async def listen(self) -> str:
        if not self.fixture:
            return "the demo backend does not change"
        uri, heard = self.uri(WATCHED), set[str]()
        async with self.client.listen(uri, heard):
            # Said again until it is heard: a session's stream opens beside its requests.
            deadline = time.monotonic() + 20
            while len(heard) < 2:
                check(time.monotonic() < deadline, f"heard only of {heard} within 20 s")
                for kind in ("tool", "resource"):
                    await self.call(f"test_trigger_{kind}_change", {})
                await anyio.sleep(0.5)
        check(heard == {"tools", uri}, f"heard of {heard}")
        return "by subscriptions/listen" if self.modern() else "by the GET stream and resources/subscribe"

    async def unknown_tool(self) -> str | None:
        try:
            answer = await self.call("no_such_tool", {})
        except ProtocolError as error:
            check(error.code == -32602, str(error))
            return None
        # The Python SDK's server answers so; a gateway knows its catalog better.
        check(self.options.direct and answer.is_error, f"a result, not an error: {answer.text!r}")
        return "the server's own answer: isError"


async def every(ask: Callable[[str | None], Awaitable[Page]]) -> list[str]:
    """A whole list, page by page."""
    names: list[str] = []
    page = Page([], None)
    while True:
        page = await ask(page.cursor)
        names += page.names
        if page.cursor is None or len(names) > 1000:
            return names


def closed(options: argparse.Namespace, revision: str, session: str | None) -> str:
    """The last step, once the client is gone: what its session answers now."""
    if session is None:
        return "no session to end"
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
        "Mcp-Session-Id": session,
    }
    if options.token:
        headers["Authorization"] = f"Bearer {options.token}"
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(options.url, ping, headers), timeout=STEP_SECONDS) as reply:
            status = reply.status
    except urllib.error.HTTPError as error:
        status = error.code
    check(status == 404, f"the ended session answers {status}")
    return "the ended session answers 404"


class Report:
    """Prints a line per step, and counts those that failed."""

    def __init__(self) -> None:
        self.failures = 0

    def ok(self, label: str, remark: str | None) -> None:
        print(f"ok {label}" + (f" ({remark})" if remark else ""), flush=True)

    def failed(self, label: str, error: BaseException) -> None:
        self.failures += 1
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        print(f"FAILED {label}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)


Connect = Callable[[argparse.Namespace], AbstractAsyncContextManager[Client]]


async def run(connect: Connect, options: argparse.Namespace, report: Report) -> None:
    steps_are_over = False
    try:
        async with connect(options) as client:
            road = Road(client, options)

            async def step(name: str) -> None:
                label = f"{name} of {road.backend.prefix}" if len(road.backends) > 1 and name in Road.EACH else name
                try:
                    with anyio.fail_after(STEP_SECONDS):
                        report.ok(label, await getattr(road, name)())
                except Exception as error:
                    report.failed(label, error)

            for name in Road.FIRST:
                await step(name)
            for road.backend in road.backends:
                for name in Road.EACH:
                    await step(name)
            for name in Road.LAST:
                await step(name)
            revision, session = client.revision(), client.session_id()
            steps_are_over = True
        report.ok("close", closed(options, revision, session))
    except Exception as error:
        report.failed("close" if steps_are_over else "connect", error)


def take(description: str, modes: tuple[str, ...], connect: Connect) -> None:
    """Takes the road with what `connect` opens, in one of these modes, and ends the process."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--url", required=True)
    parser.add_argument("--token")
    parser.add_argument("--mode", choices=modes, default=modes[0])
    parser.add_argument("--expect", choices=("fixture", "demo"), default="fixture")
    parser.add_argument("--prefix", action="append")
    parser.add_argument("--backend", action="append", choices=("modern", "legacy"), default=[])
    parser.add_argument("--page-size", type=int)
    parser.add_argument("--direct", action="store_true")
    options = parser.parse_args()
    options.prefix = options.prefix or [""]
    options.page_size = options.page_size or (5 if options.expect == "fixture" else 500)
    report = Report()
    anyio.run(run, connect, options, report)
    print("all steps passed" if report.failures == 0 else f"{report.failures} step(s) failed")
    sys.exit(0 if report.failures == 0 else 1)
