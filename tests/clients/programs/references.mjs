// What the AI SDK sends in the second step of a task: the types of its input items, for each provider and way to store.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";

const sent = [];
const recording = (url, request) => {
  sent.push(JSON.parse(request.body));
  return fetch(url, request);
};
const base = process.env.SERVER;
const openai = createOpenAI({ baseURL: `${base}/v1`, apiKey: "none", fetch: recording });
const openResponses = createOpenResponses({ name: "interlock", url: `${base}/v1/responses`, fetch: recording });
const getWeather = tool({ inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => `Rain in ${city}` });

for (const [model, store] of [[openai.responses("qwen")], [openai.responses("qwen"), false], [openResponses("qwen")]]) {
  const { text } = await generateText({
    model,
    prompt: "What is the weather in Oslo?",
    tools: { getWeather },
    stopWhen: isStepCount(5),
    providerOptions: { openai: { store } },
  });
  console.log(text, sent.at(-1).input.map((item) => item.type ?? item.role).join());
}
