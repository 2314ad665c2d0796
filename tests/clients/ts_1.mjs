// An MCP client on version 1 of the official TypeScript SDK, which knows the
// handshake alone. It takes the road that road.mjs describes.
//
//   $FONDACO_NODE tests/clients/ts_1.mjs --url URL …

import '../peers/packages.mjs';
import { readOptions } from './road.mjs';
import { take } from './road.mjs';

const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ListToolsResultSchema, McpError } = await import('@modelcontextprotocol/sdk/types.js');

const options = readOptions(['legacy']);
const headers = options.token ? { Authorization: `Bearer ${options.token}` } : {};
const client = new Client({ name: 'ts-1-client', version: '1.0.0' });
const transport = new StreamableHTTPClientTransport(new URL(options.url), { requestInit: { headers } });

await take(
  {
    async connect() {
      await client.connect(transport);
      return { revision: transport.protocolVersion, tools: client.getServerCapabilities().tools };
    },
    page: (cursor) => client.request({ method: 'tools/list', params: { cursor } }, ListToolsResultSchema),
    call: (name, args, how) => client.callTool({ name, arguments: args }, undefined, how),
    codeOf: (error) => (error instanceof McpError ? error.code : undefined),
    sessionId: () => transport.sessionId,
    async close() {
      await transport.terminateSession();
      await client.close();
    },
  },
  options,
);
