// An MCP client on version 1 of the official TypeScript SDK, which knows the
// handshake alone. It takes the road that road.mjs describes.
//
//   $FONDACO_NODE tests/clients/ts_1.mjs --url URL …

import '../peers/packages.mjs';
import { NAME } from './road.mjs';
import { readOptions } from './road.mjs';
import { take } from './road.mjs';

const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = await import('@modelcontextprotocol/sdk/types.js');

const options = readOptions(['legacy']);
const headers = options.token ? { Authorization: `Bearer ${options.token}` } : {};
const client = new Client({ name: 'ts-1-client', version: '1.0.0' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(types.ElicitRequestSchema, () => ({ action: 'accept', content: { name: NAME } }));
const transport = new StreamableHTTPClientTransport(new URL(options.url), { requestInit: { headers } });

/** What each result has to be. */
const RESULTS = {
  'resources/list': types.ListResourcesResultSchema,
  'resources/templates/list': types.ListResourceTemplatesResultSchema,
  'resources/read': types.ReadResourceResultSchema,
  'prompts/list': types.ListPromptsResultSchema,
  'prompts/get': types.GetPromptResultSchema,
  'completion/complete': types.CompleteResultSchema,
};

await take(
  {
    async connect() {
      await client.connect(transport);
      return { revision: transport.protocolVersion, tools: client.getServerCapabilities().tools };
    },
    page: (cursor) => client.request({ method: 'tools/list', params: { cursor } }, types.ListToolsResultSchema),
    call: (name, args, how) => client.callTool({ name, arguments: args }, undefined, how),
    request: (method, params) => client.request({ method, params }, RESULTS[method]),
    async listen(uri, heard) {
      client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => heard('tools'));
      client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => heard(params.uri));
      await client.subscribeResource({ uri });
      return () => client.unsubscribeResource({ uri });
    },
    codeOf: (error) => (error instanceof types.McpError ? error.code : undefined),
    sessionId: () => transport.sessionId,
    async close() {
      await transport.terminateSession();
      await client.close();
    },
  },
  options,
);
