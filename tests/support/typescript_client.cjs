// SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
//
// SPDX-License-Identifier: Apache-2.0

// Uses the server `tests/servers/served.py` with the official TypeScript SDK, and prints the results as JSON:
//
//     node typescript_client.cjs FOLDER v1|v2 legacy|auto URL
//     node typescript_client.cjs FOLDER v1|v2 legacy|auto COMMAND ARGUMENT...
//
// FOLDER has the `node_modules` of the SDK.

const { createRequire } = require("node:module");
const path = require("node:path");

const [folder, version, mode, target, ...rest] = process.argv.slice(2);
const load = createRequire(path.join(folder, "index.js"));

function parts() {
  if (version === "v2") {
    const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
    const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");
    return { Client, StreamableHTTPClientTransport, StdioClientTransport, elicitation: "elicitation/create" };
  }
  const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
  const { ElicitRequestSchema } = load("@modelcontextprotocol/sdk/types.js");
  return { Client, StreamableHTTPClientTransport, StdioClientTransport, elicitation: ElicitRequestSchema };
}

const { Client, StreamableHTTPClientTransport, StdioClientTransport, elicitation } = parts();

function transport() {
  if (target.startsWith("http://")) {
    return new StreamableHTTPClientTransport(new URL(target));
  }
  return new StdioClientTransport({ command: target, args: rest, env: process.env, stderr: "inherit" });
}

// What it came to, a result or an error, whichever.
async function outcome(promise) {
  try {
    return await promise;
  } catch (error) {
    return { error: String(error.message), code: error.code };
  }
}

async function main() {
  const asked = [];
  let changed;
  const whenChanged = new Promise((resolve) => (changed = resolve));
  const options = {
    capabilities: { elicitation: { form: {} } },
    listChanged: { tools: { onChanged: (error, tools) => changed(error ? String(error) : tools.map((tool) => tool.name)) } },
  };
  const client = new Client(
    { name: "typescript", version: "1" },
    version === "v2" ? { ...options, versionNegotiation: { mode } } : options,
  );
  client.setRequestHandler(elicitation, (request) => {
    asked.push(request.params.message);
    return { action: "accept", content: { approve: true } };
  });
  await client.connect(transport());

  const call = (name, args = {}, how = {}) =>
    outcome(version === "v2" ? client.callTool({ name, arguments: args }, how) : client.callTool({ name, arguments: args }, undefined, how));
  const steps = [];
  const tools = (await client.listTools()).tools.map((tool) => tool.name);
  const found = {
    tools,
    added: await call("add", { a: 1, b: 2 }),
    wrong: await call("add", { a: "one", b: 2 }),
    unknown: await call("nothing"),
    failed: await call("refuse"),
    leaked: await call("fail"),
    hasty: await call("hasty"),
    shouted: await call("shout", { text: "tea" }),
    ordered: await call("clerk", { task: "lamp" }, { onprogress: (progress) => steps.push(progress.message) }),
    resources: await outcome(client.listResources()),
    prompt: await outcome(client.getPrompt({ name: "ask", arguments: { thing: "tea" } })),
  };
  found.templates = (await client.listResourceTemplates()).resourceTemplates.map((template) => template.uriTemplate);
  found.document = await outcome(client.readResource({ uri: "documents://shop/chair" }));
  const abort = new AbortController();
  const waiting = call("wait", {}, { signal: abort.signal });
  setTimeout(() => abort.abort("enough"), 1000);
  found.cancelled = await waiting;
  await call("grow", { name: "grown" });
  found.changed = await whenChanged;
  console.log(JSON.stringify({ ...found, steps, asked }));
  await client.close();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
