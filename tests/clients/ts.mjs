// An MCP client on the official TypeScript SDK, of either era. It takes the road
// that road.mjs describes.
//
//   $FONDACO_NODE tests/clients/ts.mjs --url URL [--mode pin|auto|legacy] …

import '../peers/packages.mjs';
import { MODERN } from './road.mjs';
import { NAME } from './road.mjs';
import { readOptions } from './road.mjs';
import { take } from './road.mjs';

const { Client, ProtocolError, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');

const options = readOptions(['pin', 'auto', 'legacy']);
const mode = options.mode === 'pin' ? { pin: MODERN } : options.mode;
const capabilities = { elicitation: { form: {} } };
const client = new Client({ name: 'ts-client', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: NAME } }));
const authProvider = options.token ? { token: async () => options.token } : undefined;
const transport = new StreamableHTTPClientTransport(new URL(options.url), { authProvider });

await take(
  {
    async connect() {
      await client.connect(transport);
      return { revision: client.getNegotiatedProtocolVersion(), tools: client.getServerCapabilities().tools };
    },
    page: (cursor) => client.request({ method: 'tools/list', params: cursor === undefined ? {} : { cursor } }),
    listAll: () => client.listTools(),
    call: (name, args, how) => client.callTool({ name, arguments: args }, how),
    request: (method, params) => client.request({ method, params }),
    async listen(uri, heard) {
      client.setNotificationHandler('notifications/tools/list_changed', () => heard('tools'));
      client.setNotificationHandler('notifications/resources/updated', ({ params }) => heard(params.uri));
      if (client.getNegotiatedProtocolVersion() === MODERN) {
        const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
        return () => subscription.close();
      }
      await client.subscribeResource({ uri });
      return () => client.unsubscribeResource({ uri });
    },
    codeOf: (error) => (error instanceof ProtocolError ? error.code : undefined),
    sessionId: () => transport.sessionId,
    async close() {
      await transport.terminateSession();
      await client.close();
    },
  },
  options,
);
