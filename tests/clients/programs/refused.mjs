// What the official client makes of refusals, failures and cuts; each wait of its own ends as soon as its reason is gone.
import { rm, writeFile } from "node:fs/promises";
import http from "node:http";
import OpenAI from "openai";

const { SERVER, TOKEN, PIPE } = process.env;
const client = new OpenAI({ baseURL: `${SERVER}/v1`, apiKey: TOKEN });
const later = globalThis.setTimeout;
let waits = [];
let meanwhile = async () => {};
globalThis.setTimeout = (call, ms, ...rest) => {
  if (!new Error().stack.includes("utils/sleep")) return later(call, ms, ...rest); // not the client's own wait
  waits.push(ms);
  meanwhile().then(call);
};

const refused = async (call) => {
  try {
    await call();
  } catch (error) {
    const { status, code, param, headers } = error;
    console.log(error.constructor.name, status, code, param ?? undefined, headers.get("retry-after") ?? undefined);
  }
};
const until = async (model, wanted) => {
  for (;;) {
    const reply = await fetch(`${SERVER}/v1/models/${model}`, { headers: { Authorization: `Bearer ${TOKEN}` } });
    const now = await reply.json();
    if (Object.entries(wanted).every(([key, value]) => now[key] === value)) return;
  }
};
const onceOnly = { maxRetries: 0 };
const held = { model: "held", input: "Hello" };

const crowd = [];
for (const place of [{ running: 1, waiting: 0 }, { running: 1, waiting: 1 }]) {
  const request = http.request(`${SERVER}/v1/responses`, {
    method: "POST",
    headers: { Authorization: `Bearer ${TOKEN}`, "Content-Type": "application/json" },
  });
  request.on("error", () => {});
  request.end(JSON.stringify({ ...held, stream: true }));
  crowd.push(request);
  await until("held", place);
}
await refused(() => client.responses.create(held, onceOnly));
meanwhile = async () => {
  crowd.forEach((request) => request.destroy());
  await until("held", { running: 0, waiting: 0 });
};
const stream = await client.responses.create({ ...held, stream: true });
for await (const event of stream) {
  if (event.type === "response.output_text.delta") {
    console.log(event.delta, "after", waits.join());
    stream.controller.abort();
    break;
  }
}

const late = { model: "late", input: "Hello" };
await refused(() => client.responses.create(late, onceOnly));
waits = [];
meanwhile = async () => {
  await writeFile(PIPE, "");
  await rm(PIPE);
  await until("late", { state: "ready" });
};
console.log((await client.responses.create(late)).output_text, "after", waits.join());
meanwhile = async () => {};

const plain = { model: "plain_text", input: "Hello" };
await refused(() => client.withOptions({ apiKey: "guess" }).responses.create(plain));
await refused(() => client.responses.create({ ...plain, previous_response_id: "resp_none" }));
await refused(() => client.responses.create({ ...plain, input: [{ role: 7, content: "Hello" }] }));

const failing = { model: "failure_after_the_first_token", input: "Hello" };
const helper = client.responses.stream(failing);
helper.on("response.failed", ({ type, response }) => console.log(type, response.status, response.error.code));
await helper.done().catch(() => {});
for await (const { type, response } of await client.responses.create({ ...failing, stream: true })) {
  if (type === "response.failed") console.log(type, response.status, response.error.code);
}
await refused(() => client.responses.create(failing));

const cut = { model: "length_stop", input: "Hello" };
const tell = (...first) => (response) =>
  console.log(...first, response.status, response.incomplete_details.reason, response.output[0].content[0].text);
const cutting = client.responses.stream(cut);
cutting.on("response.incomplete", ({ type, response }) => tell(type)(response));
await cutting.done().catch(() => {});
const whole = await client.responses.create(cut);
tell(whole.status)(whole);
